from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.al_records import refilled, version_1, version_2
from utils import records
from utils.acceptance.engines import vllm
from utils.errors import NotMeasured, UsageError
from utils.golden import __main__ as command
from utils.golden import match, registry
from utils.records import Json

SMALL = Path(__file__).parents[1] / "result_dirs" / "golden"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SMALL, tmp_path / "golden"))


def edited(folder: Path, name: str, **changes: object) -> None:
    """Change the first run, entry or top level of a golden file, wherever the field is."""
    path = folder / name
    data = records.read_yaml(path, "golden")
    entry = data["entries"][0]
    for field, value in changes.items():
        place = next(d for d in (entry["runs"][0], entry["workload"], entry, data) if field in d)
        place[field] = value
    path.write_text(yaml.safe_dump(data))


def test_committed_goldens_load_and_lint(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["lint"]) == 0
    assert "dsv4_mtp.yaml off N=7: 5.1% below N=6" in capsys.readouterr().out


def test_published_values_are_there() -> None:
    goldens = {str(g): g for g in registry.load(registry.FOLDER).goldens}
    found = goldens["golden_al/dsv4_mtp.yaml on N=2"]
    assert (found.acceptance_length, found.imported, found.run_lengths) == (2.27, True, ())
    assert sum(golden.imported for golden in goldens.values()) == 112


def test_reference_is_pooled_over_runs(folder: Path) -> None:
    data = records.read_yaml(folder / "dsv4_mtp.yaml", "golden")
    run = data["entries"][0]["runs"][0]
    more = {**run, "accepted": 100, "steps": 1000, "per_position": [100]}
    data["entries"][0]["runs"].append(more)
    (folder / "dsv4_mtp.yaml").write_text(yaml.safe_dump(data))
    [golden] = registry.read(folder / "dsv4_mtp.yaml")
    assert golden.acceptance_length == pytest.approx(1 + 1370 / 2000)
    assert golden.run_lengths == (2.27, 1.1)
    assert golden.profile == (0.4, 0.285)  # what a run doesn't say of position 2 is nothing


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"accepted": 2001, "per_position": [1001, 1000]}, "more than N a step"),
        ({"accepted": 1000}, "1270 over positions"),
        ({"per_position": [700, 571]}, "1271 over positions"),
        ({"per_position": [700, 570, 0]}, "3 positions, N is 2"),
        ({"per_position": [570, 700]}, "rises by position"),
        ({"accepted": 1701, "per_position": [1001, 700]}, "rises by position"),
        ({"steps": 0}, "minimum"),
        ({"thinking": "maybe"}, "schema golden"),
        ({"dataset": ""}, "schema golden"),
        ({"imported": True}, "acceptance_length"),
    ],
)
def test_a_golden_that_cannot_be_true_is_refused(folder: Path, changes: Json, why: str) -> None:
    edited(folder, "dsv4_mtp.yaml", **changes)
    with pytest.raises(UsageError, match=why):
        registry.load(folder)


def test_every_draft_accepted_is_possible(folder: Path, tmp_path: Path) -> None:
    edited(folder, "dsv4_mtp.yaml", accepted=2000, per_position=[1000, 1000])
    [golden] = registry.read(folder / "dsv4_mtp.yaml")
    assert golden.acceptance_length == 3.0
    text = (registry.FOLDER / "dsv4_mtp.yaml").read_text().replace("2.27", "3.0", 1)
    (tmp_path / "x.yaml").write_text(text)
    assert next(g for g in registry.read(tmp_path / "x.yaml") if g.acceptance_length == 3.0)


def test_rows_must_come_to_the_totals(folder: Path) -> None:
    path = folder / "dsv4_mtp.yaml"
    data = records.read_yaml(path, "golden")
    run = data["entries"][0]["runs"][0]
    run["rows"] = [[600, 500], [670, 500]]
    path.write_text(yaml.safe_dump(data))
    assert len(list(registry.read(path))) == 1
    run["rows"] = [[600, 500], [670, 501]]
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(UsageError, match=r"rows come to \[1270, 1001\]"):
        list(registry.read(path))


@pytest.mark.parametrize("value", [".nan", "3.01", "0.99"])
def test_an_imported_value_outside_its_range_is_refused(tmp_path: Path, value: str) -> None:
    text = (registry.FOLDER / "dsv4_mtp.yaml").read_text()
    shutil.copy(registry.FOLDER / "tolerances.yaml", tmp_path)
    (tmp_path / "dsv4_mtp.yaml").write_text(text.replace("2.27", value, 1))
    with pytest.raises(UsageError, match=r"dsv4_mtp\.yaml"):
        registry.load(tmp_path)


def test_one_key_in_two_files_is_refused(folder: Path) -> None:
    shutil.copy(folder / "dsv4_mtp.yaml", folder / "dsv4_again.yaml")
    with pytest.raises(UsageError, match="have the same key"):
        registry.load(folder)


def test_a_folder_without_tolerances_is_refused(folder: Path) -> None:
    (folder / "tolerances.yaml").unlink()
    with pytest.raises(UsageError, match=r"tolerances\.yaml"):
        registry.load(folder)


@pytest.mark.parametrize(("name", "value"), [("relative_floor", 0.08), ("error_rate", 0.5)])
def test_tolerances_that_contradict_themselves_are_refused(
    folder: Path, name: str, value: float
) -> None:
    data = yaml.safe_load((folder / "tolerances.yaml").read_text())
    data[name]["value"] = value
    (folder / "tolerances.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(UsageError, match=rf"tolerances\.yaml: {name} is {value}"):
        registry.load(folder)


def test_the_order_of_a_key_makes_no_other_key(folder: Path) -> None:
    data = records.read_yaml(folder / "dsv4_mtp.yaml", "golden")
    workload = data["entries"][0]["workload"]
    kwargs = workload["chat_template_kwargs"]
    assert len(kwargs) > 1
    workload["chat_template_kwargs"] = dict(reversed(kwargs.items()))
    (folder / "dsv4_again.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(UsageError, match="have the same key"):
        registry.load(folder)


def test_a_curve_is_all_of_the_key_but_n(folder: Path) -> None:
    [golden] = registry.read(folder / "dsv4_mtp.yaml")
    turned = dict(reversed({**golden.key, "num_speculative_tokens": 5}.items()))
    assert replace(golden, key=turned).curve == golden.curve
    assert replace(golden, key={**golden.key, "thinking": "off"}).curve != golden.curve
    assert replace(golden, file="other.yaml").curve != golden.curve


def test_one_key_of_two_revisions_is_no_repetition(folder: Path) -> None:
    data = records.read_yaml(folder / "dsv4_mtp.yaml", "golden")
    path = folder / "dsv4_mtp2.yaml"
    path.write_text(yaml.safe_dump({**data, "model_revision": "r2"}))
    assert {g.revision for g in registry.load(folder).goldens if g.prefix == "dsv4"} == {None, "r2"}


@pytest.mark.parametrize(
    ("golden_of", "served", "differs"),
    [("r1", "r2", True), ("r1", "r1", False), ("r1", None, False), (None, "r2", False)],
)
def test_another_revision_is_another_model_where_both_say_it(
    folder: Path, golden_of: str | None, served: str | None, differs: bool
) -> None:
    edited(folder, "dsv4_mtp.yaml", model_revision=golden_of)
    [golden] = registry.read(folder / "dsv4_mtp.yaml")
    argv = ["vllm", "serve", "m", *(("--revision", served) if served else ())]
    found = match.differences(version_2(server={"argv": argv}), golden)
    assert ("model_revision" in found) is differs


def test_the_profile_is_pooled_over_the_runs_that_say_it(folder: Path) -> None:
    data = records.read_yaml(folder / "dsv4_mtp.yaml", "golden")
    run = data["entries"][0]["runs"][0]
    silent = {**run, "date": "2026-01-01T00:00:00Z", "per_position": []}
    worse = {**run, "accepted": 300, "steps": 1000, "per_position": [200, 100]}
    data["entries"][0]["runs"] += [silent, worse]
    (folder / "dsv4_mtp.yaml").write_text(yaml.safe_dump(data))
    [golden] = registry.read(folder / "dsv4_mtp.yaml")
    assert golden.profile == (0.45, 0.335)


def test_lint_asks_for_the_prefix_in_the_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "dsv4_mtp.yaml").rename(folder / "mtp.yaml")
    command.main(["lint", "--golden", str(folder)])
    assert "mtp.yaml: call it dsv4_<method>.yaml" in capsys.readouterr().out


class TestAssemble:
    """AL records → golden file."""

    def assemble(self, tmp_path: Path, *found: Json, output: str = "dsv4_mtp.yaml") -> Json:
        paths = []
        for i, record in enumerate(found):
            paths.append(str(tmp_path / f"record{i}.json"))
            records.write_json(Path(paths[-1]), record)
        target = tmp_path / output
        command.main(["assemble", *paths, "--output", str(target), "--hardware", "8x B300"])
        return records.read_yaml(target, "golden")

    def run_of(self, run_id: str, day: int = 1, **changes: object) -> Json:
        started = f"2026-11-{day:02}T10:00:00Z"
        return version_2(run={"run_id": run_id, "started": started}, **changes)

    def test_makes_a_file_with_counts_alone(self, tmp_path: Path) -> None:
        data = self.assemble(tmp_path, self.run_of("a"))
        [entry] = data["entries"]
        assert "acceptance_length" not in entry
        [run] = entry["runs"]
        assert (run["accepted"], run["steps"], run["per_position"]) == (1270, 1000, [700, 570])
        assert len(run["rows"]) == 4
        assert (run["hardware"], run["run_id"]) == ("8x B300", "a")
        [golden] = registry.read(tmp_path / "dsv4_mtp.yaml")
        assert golden.acceptance_length == 2.27

    def test_adds_runs_and_cells(self, tmp_path: Path) -> None:
        self.assemble(tmp_path, self.run_of("a"))
        data = self.assemble(
            tmp_path, self.run_of("b", 2), self.run_of("b", 2, per_position=(600,))
        )
        found = [(e["num_speculative_tokens"], len(e["runs"])) for e in data["entries"]]
        assert found == [(1, 1), (2, 2)]

    def test_another_workload_is_another_cell(self, tmp_path: Path) -> None:
        greedy = {"sampling": {"temperature": 0.0, "top_p": 1.0}}
        other = self.run_of("b", 2, temperature=0.0, workload=greedy)
        same = self.run_of("c", 3, per_position=(600,))
        data = self.assemble(tmp_path, self.run_of("a"), other, same)
        assert [len(e["runs"]) for e in data["entries"]] == [1, 1, 1]
        sent = [e["workload"]["sampling"]["temperature"] for e in data["entries"]]
        assert sent == [1.0, 1.0, 0.0]
        text = (tmp_path / "dsv4_mtp.yaml").read_text()
        assert text.count("chat_template_kwargs") == 2

    def test_says_what_the_record_leaves_to_the_engine(self, tmp_path: Path) -> None:
        data = self.assemble(tmp_path, self.run_of("a"))
        assert data["draft_model"] == "none"
        assert data["draft_sample_method"] == data["rejection_sample_method"] == "default"
        assert data["source"] == "python3 -m utils.golden assemble"
        how = {
            "draft_model": "x/y",
            "draft_sample_method": "probabilistic",
            "rejection_sample_method": "block",
        }
        other = self.assemble(tmp_path, self.run_of("a", speculation=how), output="dsv4_x.yaml")
        assert {name: other[name] for name in how} == how

    def test_refuses_prefix_caching(self, tmp_path: Path) -> None:
        with pytest.raises(NotMeasured, match="caches prefixes"):
            self.assemble(tmp_path, self.run_of("a", server={"prefix_caching": True}))
        assert not (tmp_path / "dsv4_mtp.yaml").exists()

    @pytest.mark.parametrize(
        ("model", "argv", "revision"),
        [
            ("x/y", None, None),
            ("x/y", ["vllm", "serve", "x/y", "--revision", "v2"], "v2"),
            ("x/y", ["vllm", "serve", f"/hub/models--x--y/snapshots/{'0a' * 20}"], "0a" * 20),
            ("/w", ["vllm", "serve", "/w/snapshots/latest"], None),
        ],
    )
    def test_knows_the_model_and_its_revision(
        self, tmp_path: Path, model: str, argv: list[str] | None, revision: str | None
    ) -> None:
        data = self.assemble(tmp_path, self.run_of("a", model=model, server={"argv": argv}))
        assert data["model_revision"] == revision
        assert data["model"] == ("x/y" if model == "x/y" else "deepseek-ai/DeepSeek-V4-Pro")

    def test_a_run_of_another_revision_does_not_belong(self, tmp_path: Path) -> None:
        self.assemble(tmp_path, self.run_of("a"))
        path = tmp_path / "b.json"
        records.write_json(path, self.run_of("b", 2))
        words = ["assemble", str(path), "--output", str(tmp_path / "dsv4_mtp.yaml")]
        with pytest.raises(UsageError, match="model_revision r2, not None"):
            command.main([*words, "--hardware", "8x B300", "--model-revision", "r2"])

    def test_runs_by_hand_have_no_id(self, tmp_path: Path) -> None:
        days = [version_2(run={"started": f"2026-11-0{day}T10:00:00Z"}) for day in (1, 2)]
        [entry] = self.assemble(tmp_path, *days)["entries"]
        assert [run["run_id"] for run in entry["runs"]] == [None, None]

    def test_rows_that_only_nearly_agree_stay_out(self, tmp_path: Path) -> None:
        record = self.run_of("a")
        for row in record["raw"]["requests"]:
            row["spec"] = None
        # The last step of one answer was cut by a token: chunks deliver less than was accepted.
        row = record["raw"]["requests"][0]
        row["chunk_tokens"][1] -= 1
        row["completion_tokens"] -= 1
        generated = next(
            sample
            for sample in record["raw"]["after"]["samples"]
            if sample["name"] == vllm.GENERATED_TOKENS
        )
        generated["value"] -= 1
        [entry] = self.assemble(tmp_path, refilled(record))["entries"]
        assert "rows" not in entry["runs"][0]

    def test_writes_nothing_that_could_not_be_read_back(self, tmp_path: Path) -> None:
        record = tmp_path / "a.json"
        records.write_json(record, self.run_of("a"))
        target = tmp_path / "dsv4_mtp.yaml"
        with pytest.raises(UsageError, match="would not be a golden file"):
            command.main(["assemble", str(record), "--output", str(target), "--hardware", ""])
        assert not target.exists()

    @pytest.mark.parametrize("again", [("a", 2), ("b", 1)])
    def test_refuses_a_run_that_is_there(self, tmp_path: Path, again: tuple[str, int]) -> None:
        self.assemble(tmp_path, self.run_of("a"))
        with pytest.raises(UsageError, match="which is there"):
            self.assemble(tmp_path, self.run_of(*again))

    def test_refuses_another_family(self, tmp_path: Path) -> None:
        self.assemble(tmp_path, self.run_of("a"))
        other = self.run_of("b", 2, speculation={"method": "eagle3", "draft_model": "x/y"})
        with pytest.raises(UsageError, match="method eagle3, not mtp"):
            self.assemble(tmp_path, other)

    def test_refuses_what_is_no_measurement(self, tmp_path: Path) -> None:
        failed = {**self.run_of("a"), "error": "no", "reason": "restart"}
        with pytest.raises(NotMeasured):
            self.assemble(tmp_path, failed)
        with pytest.raises(UsageError, match="drafter is inactive"):
            self.assemble(tmp_path, self.run_of("a", per_position=(0, 0)))
        with pytest.raises(UsageError, match="version 1"):
            self.assemble(tmp_path, version_1())
        with pytest.raises(UsageError, match="names no speculative method"):
            self.assemble(tmp_path, self.run_of("a", speculation={"method": None}))
        assert not (tmp_path / "dsv4_mtp.yaml").exists()

    def test_refuses_to_add_to_imported_values(self, tmp_path: Path) -> None:
        shutil.copy(registry.FOLDER / "dsv4_mtp.yaml", tmp_path)
        with pytest.raises(UsageError, match="imported False, not True"):
            self.assemble(tmp_path, self.run_of("a"))


def test_steps_are_the_mean_of_the_runs() -> None:
    path = registry.FOLDER / "smollm2_ngram.yaml"
    [entry, *_] = records.read_yaml(path, "golden")["entries"]
    steps = [run["steps"] for run in entry["runs"]]
    assert len(steps) > 1
    assert next(iter(registry.read(path))).steps == sum(steps) / len(steps)
    assert next(iter(registry.read(registry.FOLDER / "dsv4_mtp.yaml"))).steps is None


class TestLint:
    """Warnings about what no rule forbids."""

    def lint(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
        assert command.main(["lint", "--golden", str(folder)]) == 0
        return capsys.readouterr().out

    def test_a_thin_golden_is_told(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = self.lint(folder, capsys)
        assert "dsv4_mtp.yaml: does not say model_revision" in text
        assert "dsv4_mtp.yaml on N=2: one run shows no spread" in text
        assert "lacks rows" in text

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"engine_version": None}, "lacks rows, engine_version"),
            ({"per_position": []}, "lacks per_position, rows"),
            ({"prompts_sha256": None}, "its workload does not say prompts_sha256"),
            (
                {"sampling": {"temperature": 0.3, "top_p": 1.0}},
                "sampling.temperature 0.3, models.yaml sends 1.0",
            ),
        ],
    )
    def test_what_it_does_not_say_or_nobody_sends(
        self, folder: Path, capsys: pytest.CaptureFixture[str], changes: Json, words: str
    ) -> None:
        edited(folder, "dsv4_mtp.yaml", **changes)
        assert words in self.lint(folder, capsys)

    def test_an_imported_golden_cannot_say_more(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = self.lint(registry.FOLDER, capsys)
        assert "does not say" not in text
        assert "113 values, 2 warnings" in text


class TestShow:
    """The curves for people."""

    def test_in_the_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert command.main(["show"]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert [
            "dsv4_mtp",
            "on",
            "imported",
            *["1.79", "2.27", "2.49", "2.54", "2.55", "2.55", "2.54", "2.58"],
        ] in rows

    def test_of_one_model(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert command.main(["show", "--model-prefix", "glm5.2"]) == 0
        text = capsys.readouterr().out
        assert "glm5.2_mtp" in text
        assert "dsv4" not in text
        with pytest.raises(UsageError, match="no golden of glm9"):
            command.main(["show", "--model-prefix", "glm9"])

    def test_as_a_picture_and_as_a_page(self, tmp_path: Path) -> None:
        png, page, again = (tmp_path / name for name in ("a.png", "a.html", "b.html"))
        command.main(["show", "--png", str(png), "--html", str(page)])
        assert png.read_bytes().startswith(b"\x89PNG\r\n")
        command.main(["show", "--html", str(again)])
        text = page.read_text()
        assert text == again.read_text()
        assert text.count("<svg") == 1
        assert "<td>2.27</td>" in text
        assert not re.search(r"(?:src|href)=.http|<script", text)
