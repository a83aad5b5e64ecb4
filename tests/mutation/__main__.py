"""Change the validators one small thing at a time; every change must turn a test red.

Survivors that no test could notice are listed, with the reason, in survivors.txt; any other, and
any line there that no longer survives, ends with status 1. Each mutant runs in a process of its
own, forked from one that has imported everything else already.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
SURVIVORS = Path(__file__).with_name("survivors.txt")
EVALS = (
    *("validate_scores", "join", "score_points", "findings", "provenance", "expected"),
    *("evidence", "score_files", "answers", "throughput_files", "thresholds"),
)
MODULES = (
    *(f"utils.evals.{name}" for name in EVALS),
    *("utils.golden.gate", "utils.golden.match", "utils.golden.registry", "utils.verdicts"),
)
# In two steps, because most mutants die in the cases, which are collected in a moment.
CASES = ("tests/cli/test_validate_scores.py::test_case",)
OTHERS = (
    *(
        "tests/unit/test_verdicts.py",
        "tests/unit/test_score_files.py",
        "tests/unit/test_answers.py",
    ),
    *(
        "tests/unit/test_throughput_files.py",
        "tests/unit/test_gate.py",
        "tests/unit/test_limits.py",
    ),
    *("tests/unit/test_score_points.py", "tests/unit/test_registry.py"),
    "tests/unit/test_validate_scores.py",
    *("tests/cli/test_validate_scores.py", "tests/cli/test_collect_eval_results.py"),
)
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no")
DEADLINE_S = 120
KILLED, SURVIVED = 0, 1


def main(argv: Sequence[str]) -> int:
    chosen = [name for name in MODULES if not argv or name.rpartition(".")[2] in argv]
    explained = _explained()
    bad = 0
    for module in chosen:
        found = list(mutants(_path(module).read_text()))
        # Tests that fail anyway would kill everything.
        alone = Mutant(0, "unchanged", ast.parse(_path(module).read_text()))
        if _is_killed(module, alone):
            print(f"{module}: the tests fail without any change; run them first")
            return 2
        known = {name for name in explained if name.startswith(f"{module}: ")}
        alive = set()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for mutant, dead in zip(
                found, pool.map(partial(_is_killed, module), found), strict=True
            ):
                if dead:
                    continue
                alive.add(name := f"{module}: {mutant.name}")
                if name not in known:
                    print(f"survives  line {mutant.line}: {name}", flush=True)
        for name in known - alive:
            print(f"no longer survives  {name}", flush=True)
        bad += len(alive ^ known)
        counts = f"{len(found)} mutants, {len(alive)} survive, {len(known)} explained"
        print(f"{module}: {counts}", flush=True)
    return 1 if bad else 0


def _path(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def _explained() -> set[str]:
    """Names in survivors.txt; the reason is what follows, indented."""
    lines = SURVIVORS.read_text().splitlines() if SURVIVORS.exists() else []
    return {line for line in lines if line and not line.startswith((" ", "#"))}


def _is_killed(module: str, mutant: Mutant) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(_run(module, mutant))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) != SURVIVED


def _run(module: str, mutant: Mutant) -> int:
    """In the child: the module's place is taken by the mutant before anything imports it."""
    signal.alarm(DEADLINE_S)  # an endless loop is a mutant that somebody noticed
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, _Finder(module, _path(module), mutant))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    for tests in (CASES, OTHERS):
        if pytest.main([*OPTIONS, *tests]) != pytest.ExitCode.OK:
            return KILLED
    return SURVIVED


class _Finder:
    """Finds one module only, as the mutant."""

    def __init__(self, module: str, path: Path, mutant: Mutant) -> None:
        self.module, self.path, self.mutant = module, path, mutant

    def find_spec(self, name: str, *_: object) -> object:
        from importlib.util import spec_from_loader

        if name != self.module:
            return None
        return spec_from_loader(name, self, origin=str(self.path))

    def create_module(self, _: object) -> None:
        return None

    def exec_module(self, module: object) -> None:
        module.__file__ = str(self.path)  # type: ignore[attr-defined]
        exec(compile(self.mutant.tree, str(self.path), "exec"), vars(module))


if __name__ == "__main__":
    os.chdir(ROOT)
    for name in ("hypothesis", "jsonschema", "yaml", "junitparser", "tests.al_records"):
        import_module(name)  # what tests import anyway is imported once, before the forks
    raise SystemExit(main(sys.argv[1:]))
