"""What a laptop may lack: there a test that needs it skips, in CI it fails."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

# Set by CI, which installs everything: there, nothing may be left out unseen.
REQUIRE_ALL = "SPECGATE_REQUIRE_ALL"


def program(*names: str) -> Path:
    """The first of the programs that is installed; skips (fails in CI) when none is."""
    for name in names:
        for folder in (None, "/usr/sbin:/sbin"):  # daemons are not on everybody's PATH
            if found := shutil.which(name, path=folder):
                return Path(found)
    missing(f"{' or '.join(names)} is not installed")


def missing(what: str) -> NoReturn:
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(f"{what}, and {REQUIRE_ALL}=1 asks for every test")
    pytest.skip(what)
