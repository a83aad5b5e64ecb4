"""A snapshot as a server's command line, against what the engines' real parsers accept."""

from __future__ import annotations

import dataclasses
import itertools
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.decode import points
from utils.decode_eval import serving
from utils.decode_eval.converters import Draft
from utils.errors import UsageError
from utils.recipes import catalogue

EAGLE3 = Draft("eagle3", Path("/out/step_5/served"), {})
FULL = {"max_model_len": 4096, "trust_remote_code": True, "cuda_visible_devices": "6,7"}


def words(draft: Draft | None, **fields: Any) -> list[str]:
    return serving.serving_args(dataclasses.replace(points.CONFIG, **fields), draft, 8123)


@pytest.mark.parametrize("fields", [{}, FULL, {"tensor_parallel_size": 2, **FULL}])
@pytest.mark.parametrize("draft", [EAGLE3, Draft("draft_model", Path("/d"), {}), None])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_real_parsers_take_every_word(
    engine: str, draft: Draft | None, fields: dict[str, Any]
) -> None:
    found = words(draft, engine=engine, **fields)
    for version in catalogue.versions(engine):
        options = catalogue.load(engine, version)
        first = next(i for i, word in enumerate(found) if word.startswith("--"))
        assert list(options.problems(found[first:])) == []
    assert ("--served-model-name", "target") in itertools.pairwise(found)
    assert ("--port", "8123") in itertools.pairwise(found)


def test_vllm_speculates_as_a_recipe_would() -> None:
    found = words(EAGLE3)
    config = found[found.index("--speculative-config") + 1]
    assert config == (
        '{"method": "eagle3", "model": "/out/step_5/served", "num_speculative_tokens": 3}'
    )
    assert "--speculative-config" not in words(None)


def test_sglang_has_n_steps_and_one_more_token() -> None:
    found = " ".join(words(EAGLE3, engine="sglang"))
    assert "--speculative-algorithm EAGLE3" in found
    assert "--speculative-num-steps 3" in found and "--speculative-num-draft-tokens 4" in found


def test_further_arguments_come_last() -> None:
    assert words(EAGLE3, engine_args=("--enforce-eager",))[-1] == "--enforce-eager"


def test_a_command_of_ones_own_is_filled_in() -> None:
    command = ("serve", "{target}", "-d={draft}", "{port}", "{n}", "{name}", "{other}")
    assert words(EAGLE3, command=command) == [
        *("serve", "target", "-d=/out/step_5/served", "8123", "3", "target", "{other}")
    ]


def test_unknown_speculation_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown method 'medusa'"):
        words(Draft("medusa", Path("/d"), {}))


def test_a_reserved_port_is_the_engines_alone() -> None:
    """The engine can listen on it, as servers do; the kernel gives it to nobody else."""
    with serving._reserved(0) as port:
        with socket.socket() as engine:
            engine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            engine.bind(("127.0.0.1", port))
            engine.listen()
            with pytest.raises(UsageError, match=f"PORT {port} is in use"), serving._reserved(port):
                pytest.fail("a port in use was reserved")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))


@pytest.mark.parametrize(("devices", "want"), [("cpu", ""), ("6,7", "6,7")])
def test_devices_are_pinned(devices: str, want: str) -> None:
    config = dataclasses.replace(points.CONFIG, cuda_visible_devices=devices)
    environ = serving.scrubbed({"CUDA_VISIBLE_DEVICES": "0", "PATH": os.defpath}, config)
    assert environ == {"CUDA_VISIBLE_DEVICES": want, "PATH": os.defpath}
