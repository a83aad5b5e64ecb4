"""The decode_eval block of a training configuration: every field, and one clear error at setup."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils import records
from utils.errors import UsageError
from utils.models import near
from utils.records import Json

SCHEMA = "decode_eval_config"
CPU = "cpu"
DEFAULT_SET = "default"


@dataclass(frozen=True)
class PromptSource:
    """One prompt set: where its rows are and what is made of them. Fields: the schema says."""

    name: str
    input_data: str
    dataset_name: str | None
    split: str
    messages_column: str
    prompt_column: str | None
    token_ids_column: str | None
    endpoint: str
    num_prompts: int
    max_new_tokens: int


@dataclass(frozen=True)
class DecodeEvalConfig:
    """Every field of the block; what each means: utils/schemas/decode_eval_config.json."""

    every_steps: int
    target_model: str
    output_dir: str
    num_speculative_tokens: int
    cuda_visible_devices: str | None = None
    input_data: str | None = None
    dataset_name: str | None = None
    split: str = "train"
    messages_column: str = "messages"
    prompt_column: str | None = None
    token_ids_column: str | None = None
    endpoint: str = "chat"
    num_prompts: int = 32
    max_new_tokens: int = 256
    concurrency: int = 8
    temperature: float = 0.0
    top_p: float = 1.0
    sampling: Mapping[str, float] = dataclasses.field(default_factory=dict)
    chat_template_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    thinking: str = "off"
    shuffle_seed: int = 42
    prompt_sets: Sequence[Json] = ()
    train_data: str | None = None
    allow_training_prompts: bool = False
    engine: str = "vllm"
    engine_python: str | None = None
    engine_args: Sequence[str] = ()
    engine_env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    command: Sequence[str] = ()
    base_url: str | None = None
    method: str | None = None
    port: int = 0
    tensor_parallel_size: int = 1
    dtype: str = "auto"
    gpu_memory_utilization: float = 0.8
    max_model_len: int | None = None
    trust_remote_code: bool = False
    timeout_s: float = 1800.0
    boot_timeout_s: float | None = None
    request_timeout_s: float = 600.0
    stall_s: float = 120.0
    stop_grace_s: float = 4.0
    finish_wait_s: float = 1800.0
    at_start: bool = True
    at_end: bool = True
    also_at: Sequence[int] = ()
    on_busy: str = "skip"
    on_trainer_exit: str = "kill"
    max_failures: int = 3
    keep_weights: str = "best"
    alarm_gap: float = 0.5
    preflight: str = "strict"

    @property
    def folder(self) -> Path:
        return Path(self.output_dir)

    @property
    def devices(self) -> tuple[str, ...]:
        """Reserved devices; empty on a CPU, and where nothing is started."""
        named = self.cuda_visible_devices
        return () if named in (None, CPU) else tuple(str(named).split(","))

    @property
    def sources(self) -> tuple[PromptSource, ...]:
        """The prompt sets, each with every field filled in."""
        names = [field.name for field in dataclasses.fields(PromptSource) if field.name != "name"]
        common = {name: getattr(self, name) for name in names}
        sets = self.prompt_sets or ({"name": DEFAULT_SET},)
        return tuple(PromptSource(**{**common, **one}) for one in sets)

    def as_json(self) -> Json:
        data = dataclasses.asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in data.items()}

    @classmethod
    def from_json(cls, data: Json) -> DecodeEvalConfig:
        return cls(**data)


def resolve_decode_eval_config(
    block: Mapping[str, Any] | None,
    *,
    training_devices: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    **inherited: Any,
) -> DecodeEvalConfig | None:
    """The block of a training configuration, checked; None when it is absent or every_steps is 0.

    training_devices: devices of this job; by default CUDA_VISIBLE_DEVICES and LOCAL_WORLD_SIZE
    tell. inherited: what the training's own configuration says, such as output_dir, target_model,
    train_data; the block goes before it.

    Raises:
        UsageError: the block is partial, misspelt, out of range or shares a device with training.
    """
    if block is None:
        return None
    known = {field.name for field in dataclasses.fields(DecodeEvalConfig)}
    for name in block:
        if name not in known:
            raise UsageError(f"decode_eval has no field {name!r}; {near(str(name), known)}")
    if block.get("every_steps") == 0 and block["every_steps"] is not False:
        return None
    data = {**{k: v for k, v in inherited.items() if v is not None}, **block}
    _complete(data)
    if problem := records.schema_problem(data, SCHEMA):
        raise UsageError(f"decode_eval{_explained(problem)}")
    config = _located(DecodeEvalConfig(**data))
    from utils.decode_eval import config_rules  # it needs the class above

    config_rules.check(config, training_devices, os.environ if environ is None else environ)
    return config


def _complete(data: Json) -> None:
    wanted = ["every_steps", "target_model", "output_dir", "num_speculative_tokens"]
    if not data.get("base_url"):
        wanted.append("cuda_visible_devices")
    if not data.get("prompt_sets"):
        wanted.append("input_data")
    if missing := [name for name in wanted if data.get(name) is None]:
        raise UsageError(
            f"decode_eval lacks {', '.join(missing)}; set every_steps: 0 or remove the block to "
            "turn it off"
        )


def _explained(problem: str) -> str:
    """A violation with what the field is for."""
    where, _, what = problem.partition(": ")
    field = where.removeprefix("$.").partition("[")[0]
    schema = records.read_json(records.SCHEMAS / f"{SCHEMA}.json")
    part = schema["properties"].get(field, {})
    part = schema["$defs"].get(field, part)
    meaning = f"; {field}: {part['description']}" if "description" in part else ""
    return f"{where.removeprefix('$')}: {what}{meaning}"


def _located(config: DecodeEvalConfig) -> DecodeEvalConfig:
    """Paths made absolute: the worker runs in another folder."""

    def located(path: str | None) -> str | None:
        return str(Path(path).absolute()) if path and Path(path).exists() else path

    return dataclasses.replace(
        config,
        output_dir=str(Path(config.output_dir).absolute()),
        **{n: located(getattr(config, n)) for n in ("target_model", "input_data", "train_data")},  # type: ignore[arg-type]
        prompt_sets=tuple(
            {**one, **({"input_data": located(one["input_data"])} if "input_data" in one else {})}
            for one in config.prompt_sets
        ),
    )
