from __future__ import annotations

import pytest

from utils import errors


def raising(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (errors.UsageError("PORT is taken"), 2, "error: PORT is taken"),
        (errors.NotMeasured("no scrape"), 3, "error: no scrape"),
        (ZeroDivisionError("a bug"), 3, "ZeroDivisionError: a bug"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_every_end_has_its_status(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert errors.run(lambda: raising(error)) == status
    assert said in capsys.readouterr().err


def test_a_status_is_handed_on() -> None:
    assert errors.run(lambda: errors.FAIL) == 1
