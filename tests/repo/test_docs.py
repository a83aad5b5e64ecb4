"""Commands in README.md and docs/: what they name exists and takes the options; cheap ones run."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?:bash|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )*(?:python3?|bash|make) [^`]+)`")
ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=")
PLACEHOLDER = re.compile(r"[<>…\[\]{}]|\b[A-Z]{2,}\b")
# Without a server, a GPU, a network or a minute's time.
CHEAP = (
    "python3 -m utils.recipes list",
    "python3 -m utils.recipes plan",
    "python3 -m utils.golden lint",
    "python3 -m utils.ci failsafe",
    "make help",
)


def commands() -> Iterator[tuple[str, str]]:
    """(file, command) for each in a fenced block or in backticks, comments cut off."""
    for path in DOCS:
        text = path.read_text(encoding="utf-8")
        for block in FENCE.findall(text):
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip() and not line.lstrip().startswith("#"):
                    yield path.name, " ".join(line.split("  #")[0].split())
        for inline in INLINE.findall(FENCE.sub("", text)):
            yield path.name, " ".join(inline.split())


ALL = sorted(set(commands()))


def words_of(command: str) -> list[str]:
    """Its words, without leading assignments; redirections and pipes end it."""
    words = shlex.split(re.split(r" [|>;&]+ |;", command)[0], comments=True)
    while words and ASSIGNMENT.match(words[0]):
        words.pop(0)
    return words


@cache
def help_of(module: str, *subcommands: str) -> str:
    """What a command's parser says of itself."""
    found = importlib.util.find_spec(module)
    assert found, f"there is no module {module}"
    if found.submodule_search_locations is not None:
        module = f"{module}.__main__"
        if module == "utils.records.__main__":
            module = "utils.record_kinds"
    loaded = importlib.import_module("utils.record_kinds" if module == "utils.records" else module)
    arguments = [*subcommands, "--help"]
    before, sys.argv = sys.argv, [module, *arguments]
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            takes = inspect.signature(loaded.main).parameters
            loaded.main(arguments) if takes else loaded.main()
    finally:
        sys.argv = before
    return output.getvalue()


def subcommands_of(module: str, words: list[str]) -> list[str]:
    """The first word, if it is a command with a help of its own."""
    named = [word for word in words[:1] if re.fullmatch("[a-z-]+", word)]
    own = help_of(module, *named)
    return named if named and re.match(rf"usage: \S.* {named[0]}\b", own) else []


def check_module(module: str, words: list[str]) -> None:
    own = words[: words.index("--")] if "--" in words else words
    said = help_of(module, *subcommands_of(module, own))
    assert "usage" in said, f"{module} has no --help"
    for word in own:
        if word.startswith("--"):
            option = word.partition("=")[0]
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", said), f"{module} takes no {option}"


def check_path(text: str) -> None:
    pattern = re.sub(r"\*+", "*", re.sub(r"<[^>]*>|\[[^\]]*\]|…", "*", text))
    assert list(ROOT.glob(pattern)), f"there is no {text}"


def module_at(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__main__")


@pytest.mark.parametrize(("file", "command"), ALL, ids=[f"{f}: {c[:60]}" for f, c in ALL])
def test_a_command_names_what_exists(file: str, command: str) -> None:
    words = words_of(command)
    if not words or words[0] not in ("python3", "python", "bash", "make", "sh"):
        return
    program, *rest = words
    if program == "make":
        targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in rest if word.isalpha() and word.islower()} <= targets
    elif rest[0] == "-m":
        if rest[1].startswith(("utils", "tests")):
            assert importlib.util.find_spec(rest[1]), f"there is no module {rest[1]}"
        if rest[1].startswith("utils"):
            check_module(rest[1], rest[2:])
    elif rest[0].endswith(".py"):
        check_path(rest[0])
        check_module(module_at(rest[0]), rest[1:])
    elif program == "bash":
        check_path(rest[0])


RUN = [
    (file, command)
    for file, command in ALL
    if command.startswith(CHEAP) and not PLACEHOLDER.search(command)
]


@pytest.mark.parametrize(("file", "command"), RUN, ids=[f"{f}: {c[:60]}" for f, c in RUN])
def test_a_cheap_command_runs(file: str, command: str, tmp_path: Path) -> None:
    words = [word.replace("/tmp/", f"{tmp_path}/") for word in words_of(command)]
    moved = [sys.executable if word == "python3" else word for word in words]
    done = subprocess.run(moved, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_something_to_check() -> None:
    assert len(ALL) > 20
    assert len(RUN) >= 3


def test_an_option_that_nobody_takes_is_found() -> None:
    with pytest.raises(AssertionError, match="takes no --colour"):
        check_module("utils.recipes", ["plan", "--colour", "red"])
    with pytest.raises(AssertionError, match="there is no module"):
        check_module("utils.nothing", [])


LINK = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{path.name}: {target}"
