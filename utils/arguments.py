"""Types of options for argparse: what can't be meant ends a command before it has begun."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from urllib.parse import urlsplit


def count(text: str) -> int:
    """A whole number from 1 on."""
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def seconds(text: str) -> float:
    """A time above 0."""
    value = _number(text)
    if not 0.0 < value < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def temperature(text: str) -> float:
    value = _number(text)
    if not 0.0 <= value < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a temperature from 0 on")
    return value


def url(text: str) -> str:
    """http://host:port, with a path or without, without a slash at its end."""
    try:
        where = urlsplit(text)
        known = where.scheme in ("http", "https") and where.hostname and where.port != 0
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no URL: {error}") from error
    if not known:
        raise ArgumentTypeError(f"{text!r} is no URL such as http://127.0.0.1:8888")
    return text.rstrip("/")


def base_url(text: str) -> str:
    """Of a server: the paths of its routes are put behind it."""
    base = url(text)
    if base.endswith("/v1"):
        raise ArgumentTypeError(f"{text!r}: leave out /v1, it is put behind it")
    return base


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
