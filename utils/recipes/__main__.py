"""Look after the recipes: list them, check them, start a new one, ask an engine what it takes."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path

from utils import errors
from utils.errors import UsageError
from utils.recipes import names, plan
from utils.recipes.names import RecipeName
from utils.recipes.rules import TITLES

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "single_node"
TODO = "TODO: say what is odd here; then run python3 -m utils.recipes lint"


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.command == "catalogue":
        from utils.recipes import catalogue

        print(catalogue.write(args.engine, args.python))
    elif args.command == "new":
        print(new(args.name, args.like, args.folder))
    elif args.command == "plan":
        return plan.write(args, FOLDER.parent)
    elif args.command == "doctor":
        from utils.recipes import doctor

        return doctor.command(_recipes([args.recipe])[0], args.lenient)
    elif args.command == "compare":
        from utils.recipes import compare

        return compare.command(args.base, args.speculated)
    elif args.command == "lossless":
        from utils.recipes import lossless

        return lossless.command(args.base, args.speculated)
    elif args.command == "list":
        print("\n".join(table(_recipes(args.recipes))))
    else:
        return lint(_recipes(args.recipes))
    return errors.PASS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m utils.recipes", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("list", "what there is"), ("lint", "check every rule; 1: one is broken")):
        add = commands.add_parser(name, help=text).add_argument
        add("recipes", nargs="*", type=Path, metavar="RECIPE", help="files (default: all)")
    add = commands.add_parser("new", help="copy the nearest recipe under a new name").add_argument
    add("name", help=names.GRAMMAR)
    add("--like", help="the recipe to copy (default: the nearest by name)")
    add("--folder", type=Path, default=FOLDER, help="where recipes are")
    plan.add_arguments(commands.add_parser("plan", help="a sweep: its runs and their cost"))
    add = commands.add_parser("doctor", help="is this node fit for a recipe?").add_argument
    add("recipe", type=Path, help="its file; the environment is as for a run")
    add("--lenient", action="store_true", help="what can't be looked at is no obstacle")
    for name, kind, text in (
        ("compare", "DIR", "result directories of a recipe without and with speculation"),
        ("lossless", "FILE", "their greedy_outputs.json: did speculation change what was said?"),
    ):
        add = commands.add_parser(name, help=text).add_argument
        add("base", type=Path, metavar=f"BASE_{kind}")
        add("speculated", type=Path, metavar=f"MTP_{kind}")
    add = commands.add_parser("catalogue", help="ask an engine which options it takes").add_argument
    add("--engine", required=True, choices=("vllm", "sglang"))
    add("--python", required=True, type=Path, help="the Python that has the engine")
    return parser


def _recipes(given: Sequence[Path]) -> list[Path]:
    missing = [str(path) for path in given if not path.is_file()]
    if missing:
        raise UsageError(f"there is no recipe {' '.join(missing)}")
    found = sorted(path.resolve() for path in given)
    return found or sorted(FOLDER.parent.glob("*_node/*.sh"))


def lint(recipes: Sequence[Path]) -> int:
    from utils.recipes import lint

    findings = lint.lint(recipes)
    for finding in findings:
        print(finding)
    print(f"{len(recipes)} recipes, {len(findings)} findings")
    return errors.FAIL if findings else errors.PASS


def table(recipes: Sequence[Path]) -> list[str]:
    """One line per recipe: its facts, and what it says to speculate."""
    rows = [("recipe", "model", "precision", "hardware", "engine", "speculation")]
    for path in recipes:
        name = names.parse(path.name)
        said = [line for line in path.read_text().splitlines() if line.startswith("speculate ")]
        method = " ".join(said[0].split()[1:3]) if said else "none"
        rows.append((path.stem, name.model, name.precision, name.hw, name.engine, method))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def new(file_name: str, like: str | None, folder: Path) -> Path:
    """Copy a recipe; what a person has to look at is marked TODO, which lint refuses.

    Raises:
        UsageError: bad name, it exists already, or there is nothing to copy.
    """
    name = names.parse(file_name.removesuffix(".sh") + ".sh")
    path = folder / name.file_name
    if path.exists():
        raise UsageError(f"{path} exists already; edit it")
    source = folder / (like.removesuffix(".sh") + ".sh") if like else _nearest(name, folder)
    if not source.is_file():
        raise UsageError(f"there is no recipe {source}; see python3 -m utils.recipes list")
    shebang, _, *rest = source.read_text(encoding="utf-8").splitlines()
    title = TITLES[name.engine_family]
    first = f"# {name.model} in {name.precision} on {name.hw.upper()} with {title}."
    copied = f"# Copied from {source.name}. {TODO}"
    path.write_text("\n".join((shebang, first, copied, *rest)) + "\n", encoding="utf-8")
    return path


def _nearest(name: RecipeName, folder: Path) -> Path:
    """Of the same engine and speculation, the one whose name is most like it."""

    def likeness(path: Path) -> tuple[bool, bool, float]:
        other = names.parse(path.name)
        return (
            other.engine_family == name.engine_family,
            other.speculative == name.speculative,
            difflib.SequenceMatcher(None, path.name, name.file_name).ratio(),
        )

    recipes = sorted(folder.glob("*.sh"))
    if not recipes:
        raise UsageError(f"{folder} has no recipe to copy")
    return max(recipes, key=likeness)


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
