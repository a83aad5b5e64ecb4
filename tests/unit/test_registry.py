from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.al_records import refilled, version_1, version_2
from utils import records
from utils.acceptance.engines import vllm
from utils.errors import NotMeasured, UsageError
from utils.golden import __main__ as command
from utils.golden import registry
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
    more = {**run, "accepted": 100, "steps": 1000, "per_position": [100, 0]}
    data["entries"][0]["runs"].append(more)
    (folder / "dsv4_mtp.yaml").write_text(yaml.safe_dump(data))
    [golden] = registry.read(folder / "dsv4_mtp.yaml")
    assert golden.acceptance_length == pytest.approx(1 + 1370 / 2000)
    assert golden.run_lengths == (2.27, 1.1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"accepted": 2001, "per_position": [1001, 1000]}, "more than N a step"),
        ({"accepted": 1000}, "1270 over positions"),
        ({"per_position": [700, 571]}, "1271 over positions"),
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


def test_show_prints_curves(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["show"]) == 0
    assert "2.27" in capsys.readouterr().out


def test_lint_asks_for_the_prefix_in_the_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "dsv4_mtp.yaml").rename(folder / "mtp.yaml")
    command.main(["lint", "--golden", str(folder)])
    assert "mtp.yaml: call it dsv4_<method>.yaml" in capsys.readouterr().out


class TestCollect:
    """AL records → golden file."""

    def collect(self, tmp_path: Path, *found: Json, output: str = "dsv4_mtp.yaml") -> Json:
        paths = []
        for i, record in enumerate(found):
            paths.append(str(tmp_path / f"record{i}.json"))
            records.write_json(Path(paths[-1]), record)
        target = tmp_path / output
        command.main(["collect", *paths, "--output", str(target), "--hardware", "8x B300"])
        return records.read_yaml(target, "golden")

    def run_of(self, run_id: str, day: int = 1, **changes: object) -> Json:
        started = f"2026-11-{day:02}T10:00:00Z"
        return version_2(run={"run_id": run_id, "started": started}, **changes)

    def test_makes_a_file_with_counts_alone(self, tmp_path: Path) -> None:
        data = self.collect(tmp_path, self.run_of("a"))
        [entry] = data["entries"]
        assert "acceptance_length" not in entry
        [run] = entry["runs"]
        assert (run["accepted"], run["steps"], run["per_position"]) == (1270, 1000, [700, 570])
        assert len(run["rows"]) == 4
        assert (run["hardware"], run["run_id"]) == ("8x B300", "a")
        [golden] = registry.read(tmp_path / "dsv4_mtp.yaml")
        assert golden.acceptance_length == 2.27

    def test_adds_runs_and_cells(self, tmp_path: Path) -> None:
        self.collect(tmp_path, self.run_of("a"))
        data = self.collect(tmp_path, self.run_of("b", 2), self.run_of("b", 2, per_position=(600,)))
        found = [(e["num_speculative_tokens"], len(e["runs"])) for e in data["entries"]]
        assert found == [(1, 1), (2, 2)]

    def test_another_workload_is_another_cell(self, tmp_path: Path) -> None:
        other = self.run_of("b", 2, workload={"sampling": {"temperature": 0.0, "top_p": 1.0}})
        same = self.run_of("c", 3, per_position=(600,))
        data = self.collect(tmp_path, self.run_of("a"), other, same)
        assert [len(e["runs"]) for e in data["entries"]] == [1, 1, 1]
        sent = [e["workload"]["sampling"]["temperature"] for e in data["entries"]]
        assert sent == [1.0, 1.0, 0.0]
        text = (tmp_path / "dsv4_mtp.yaml").read_text()
        assert text.count("chat_template_kwargs") == 2

    def test_says_what_the_record_leaves_to_the_engine(self, tmp_path: Path) -> None:
        data = self.collect(tmp_path, self.run_of("a"))
        assert data["draft_model"] == "none"
        assert data["draft_sample_method"] == data["rejection_sample_method"] == "default"
        assert data["source"] == "python3 -m utils.golden collect"
        how = {
            "draft_model": "x/y",
            "draft_sample_method": "probabilistic",
            "rejection_sample_method": "block",
        }
        other = self.collect(tmp_path, self.run_of("a", speculation=how), output="dsv4_x.yaml")
        assert {name: other[name] for name in how} == how

    def test_runs_by_hand_have_no_id(self, tmp_path: Path) -> None:
        days = [version_2(run={"started": f"2026-11-0{day}T10:00:00Z"}) for day in (1, 2)]
        [entry] = self.collect(tmp_path, *days)["entries"]
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
        [entry] = self.collect(tmp_path, refilled(record))["entries"]
        assert "rows" not in entry["runs"][0]

    def test_writes_nothing_that_could_not_be_read_back(self, tmp_path: Path) -> None:
        record = tmp_path / "a.json"
        records.write_json(record, self.run_of("a"))
        target = tmp_path / "dsv4_mtp.yaml"
        with pytest.raises(UsageError, match="would not be a golden file"):
            command.main(["collect", str(record), "--output", str(target), "--hardware", ""])
        assert not target.exists()

    @pytest.mark.parametrize("again", [("a", 2), ("b", 1)])
    def test_refuses_a_run_that_is_there(self, tmp_path: Path, again: tuple[str, int]) -> None:
        self.collect(tmp_path, self.run_of("a"))
        with pytest.raises(UsageError, match="which is there"):
            self.collect(tmp_path, self.run_of(*again))

    def test_refuses_another_family(self, tmp_path: Path) -> None:
        self.collect(tmp_path, self.run_of("a"))
        other = self.run_of("b", 2, speculation={"method": "eagle3", "draft_model": "x/y"})
        with pytest.raises(UsageError, match="method eagle3, not mtp"):
            self.collect(tmp_path, other)

    def test_refuses_what_is_no_measurement(self, tmp_path: Path) -> None:
        failed = {**self.run_of("a"), "error": "no", "reason": "restart"}
        with pytest.raises(NotMeasured):
            self.collect(tmp_path, failed)
        with pytest.raises(UsageError, match="drafter is inactive"):
            self.collect(tmp_path, self.run_of("a", per_position=(0, 0)))
        with pytest.raises(UsageError, match="version 1"):
            self.collect(tmp_path, version_1())
        with pytest.raises(UsageError, match="which method"):
            self.collect(tmp_path, self.run_of("a", speculation={"method": None}))
        assert not (tmp_path / "dsv4_mtp.yaml").exists()

    def test_refuses_to_add_to_imported_values(self, tmp_path: Path) -> None:
        shutil.copy(registry.FOLDER / "dsv4_mtp.yaml", tmp_path)
        with pytest.raises(UsageError, match="imported False, not True"):
            self.collect(tmp_path, self.run_of("a"))


def test_steps_are_the_mean_of_the_runs() -> None:
    path = registry.FOLDER / "smollm2_ngram.yaml"
    [entry, *_] = records.read_yaml(path, "golden")["entries"]
    steps = [run["steps"] for run in entry["runs"]]
    assert len(steps) > 1
    assert next(iter(registry.read(path))).steps == sum(steps) / len(steps)
    assert next(iter(registry.read(registry.FOLDER / "dsv4_mtp.yaml"))).steps is None
