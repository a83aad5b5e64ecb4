"""The decode_eval block: every mistake is one clear error at setup, never a silent off."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from utils import records
from utils.decode_eval import DecodeEvalConfig, resolve_decode_eval_config
from utils.errors import UsageError

ROOT = Path(__file__).parents[2]
BLOCK: dict[str, Any] = {
    "every_steps": 500,
    "cuda_visible_devices": "7",
    "target_model": "org/target",
    "output_dir": "out",
    "num_speculative_tokens": 3,
    "input_data": "held_out.jsonl",
}
# What the reference's configuration has, with its defaults.
REFERENCE = {
    **{"num_prompts": 32, "concurrency": 8, "max_new_tokens": 256, "temperature": 0.0},
    **{"top_p": 1.0, "messages_column": "messages", "prompt_column": None, "split": "train"},
    **{"dataset_name": None, "shuffle_seed": 42, "port": 0, "gpu_memory_utilization": 0.8},
    **{"max_model_len": None, "trust_remote_code": False, "timeout_s": 1800},
}


def resolve(**changed: Any) -> DecodeEvalConfig | None:
    data = {k: v for k, v in {**BLOCK, **changed}.items() if v is not ...}
    return resolve_decode_eval_config(data, environ={"CUDA_VISIBLE_DEVICES": "0,1"})


def test_the_references_fields_and_defaults() -> None:
    config = resolve()
    assert config
    assert {name: getattr(config, name) for name in REFERENCE} == REFERENCE


def test_schema_and_dataclass_have_the_same_fields() -> None:
    schema = records.read_json(records.SCHEMAS / "decode_eval_config.json")
    fields = dataclasses.fields(DecodeEvalConfig)
    assert set(schema["properties"]) == {field.name for field in fields}
    assert records.schema_problem(resolve().as_json(), "decode_eval_config") is None  # type: ignore[union-attr]


def test_the_sidecar_gives_the_same_config() -> None:
    config = resolve(prompt_sets=[{"name": "a"}, {"name": "b", "num_prompts": 4}], also_at=[5])
    assert config
    again = DecodeEvalConfig.from_json(json.loads(json.dumps(config.as_json())))
    assert (again.sources, again.as_json()) == (config.sources, config.as_json())
    assert [source.num_prompts for source in again.sources] == [32, 4]


@pytest.mark.parametrize("block", [None, {"every_steps": 0}, {**BLOCK, "every_steps": 0}])
def test_off(block: dict[str, Any] | None) -> None:
    assert resolve_decode_eval_config(block) is None


def test_what_training_says_is_inherited_and_the_block_goes_first() -> None:
    config = resolve_decode_eval_config(
        {"every_steps": 5, "cuda_visible_devices": "7", "input_data": "a", "output_dir": "mine"},
        environ={},
        target_model="org/target",
        num_speculative_tokens=4,
        output_dir="theirs",
        train_data=None,
    )
    assert config
    found = (config.target_model, config.num_speculative_tokens, Path(config.output_dir).name)
    assert found == ("org/target", 4, "mine")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"every_step": 100, "every_steps": ...}, "no field 'every_step'; did you mean every_steps"),
    ({"every_steps": 0, "evry": 1}, "no field 'evry'"),
    ({"every_steps": ...}, "lacks every_steps; set every_steps: 0"),
    ({"cuda_visible_devices": ...}, "lacks cuda_visible_devices"),
    ({"input_data": ..., "target_model": None}, "lacks target_model, input_data"),
    ({"every_steps": "abc"}, "every_steps: 'abc' is not of type 'integer'"),
    ({"every_steps": -5}, "every_steps: -5 is less than the minimum of 0"),
    ({"every_steps": False}, "every_steps: False is not of type"),
    ({"num_speculative_tokens": 0}, "num_speculative_tokens: 0 is less than the minimum of 1"),
    ({"cuda_visible_devices": [6, 7]}, 'as text: "7" or "6,7"'),
    ({"cuda_visible_devices": 7}, 'as text: "7" or "6,7"'),
    ({"cuda_visible_devices": "  "}, "does not match"),
    ({"cuda_visible_devices": "6,6"}, "repeats a device"),
    ({"cuda_visible_devices": "1,7"}, "shares 1 with training, which uses 0"),
    ({"cuda_visible_devices": "GPU-aa"}, "can't be compared with training's 0"),
    ({"tensor_parallel_size": 2}, "needs as many devices"),
    ({"port": "abc"}, "port: 'abc' is not of type"),
    ({"port": 70000}, "greater than the maximum of 65535"),
    ({"num_prompts": 0}, "num_prompts: 0 is less"),
    ({"timeout_s": -1}, "timeout_s: -1 is less"),
    ({"timeout_s": float("inf")}, "timeout_s must be finite"),
    ({"boot_timeout_s": 3600}, "more than timeout_s 1800"),
    ({"gpu_memory_utilization": 7}, "greater than the maximum of 1"),
    ({"input_data": ["a.jsonl", "b.jsonl"]}, "input_data: ['a.jsonl', 'b.jsonl'] is not of type"),
    ({"engine": "vlm"}, "no adapter for engine 'vlm'; did you mean"),
    ({"engine": "trt"}, "can't start engine 'trt'"),
    ({"command": ["x"], "base_url": "http://h:1"}, "has command and base_url"),
    ({"sampling": {"temperature": 1}}, "sampling repeats temperature"),
    ({"prompt_sets": [{"name": "a"}, {"name": "a"}]}, "has a name twice"),
    ({"prompt_sets": [{"name": "a", "colum": "b"}]}, "prompt_sets[0]"),
    ({"prompt_column": "p", "token_ids_column": "t"}, "not both"),
    ({"token_ids_column": "t"}, "endpoint: completions"),
    ({"endpoint": "completions"}, "completions needs prompt_column"),
    ({"train_data": "held_out.jsonl"}, "is the training data"),
    ({"split": "train[1"}, "split: 'train[1' does not match"),
]


@pytest.mark.parametrize(("changed", "text"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong(changed: dict[str, Any], text: str) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0,1", "LOCAL_WORLD_SIZE": "2"}
    data = {k: v for k, v in {**BLOCK, **changed}.items() if v is not ...}
    with pytest.raises(UsageError) as error:
        resolve_decode_eval_config(data, environ=environ)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("environ", "device", "fits"),
    [
        ({}, "0", False),  # one process trains on device 0
        ({}, "1", True),
        ({"LOCAL_WORLD_SIZE": "8"}, "7", False),
        ({"LOCAL_WORLD_SIZE": "7"}, "7", True),
        ({"RANK": "0", "WORLD_SIZE": "8"}, "7", False),
        ({"WORLD_SIZE": "14", "LOCAL_WORLD_SIZE": "7"}, "7", True),
        ({"CUDA_VISIBLE_DEVICES": "4,5,7", "LOCAL_WORLD_SIZE": "2"}, "7", True),
        ({"CUDA_VISIBLE_DEVICES": "4,5,7", "LOCAL_WORLD_SIZE": "3"}, "7", False),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a"}, "GPU-b", True),
        ({"LOCAL_WORLD_SIZE": "8"}, "cpu", True),
    ],
)
def test_devices_of_training(environ: dict[str, str], device: str, fits: bool) -> None:
    block = {**BLOCK, "cuda_visible_devices": device}
    if fits:
        assert resolve_decode_eval_config(block, environ=environ)
    else:
        with pytest.raises(UsageError, match="shares"):
            resolve_decode_eval_config(block, environ=environ)


def test_training_prompts_only_when_asked_for(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("{}\n")
    link = tmp_path / "same.jsonl"
    link.symlink_to(data)
    same = {"input_data": str(link), "train_data": str(data)}
    with pytest.raises(UsageError, match="held-out"):
        resolve(**same)
    assert resolve(**same, allow_training_prompts=True)
    assert resolve(**same, split="train[90%:]")


def test_neither_torch_nor_an_engine_is_imported() -> None:
    code = """
import sys
import utils.decode_eval, utils.decode_eval.worker, utils.decode_eval.commands
print(sorted({'torch', 'transformers', 'vllm', 'sglang', 'datasets'} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
