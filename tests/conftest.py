"""How `pytest -n auto` spreads the tests: the tests of a file run in one process, in order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

ENGINES = Path(__file__).parent / "engine"
# Files that share what is slow to set up: they run in one process too.
TOGETHER = (
    (
        "tests/engine/test_on_off.py",
        "tests/engine/test_recipe.py",
        "tests/engine/test_self_draft.py",
    ),
    ("tests/shell/test_slurm.py", "tests/shell/test_slurm_nodes.py"),
)
MOST = 4  # processes; each may run an engine, of some gigabytes


def scope(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return next((files[0] for files in TOGETHER if file in files), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ENGINES not in item.path.parents)  # what takes longest comes first


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return min((os.cpu_count() or 1) + 1, MOST)  # many tests wait for other processes


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    config.option.loadscopereorder = False
    return Scheduling(config, log)
