"""What a configuration can't say though each of its fields may: rules between fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from utils.acceptance import engines
from utils.decode_eval.config import DecodeEvalConfig
from utils.errors import UsageError

LAUNCHED = ("vllm", "sglang")
SECONDS = ("timeout_s", "request_timeout_s", "stall_s", "stop_grace_s", "finish_wait_s")


def check(
    config: DecodeEvalConfig, training_devices: Sequence[str] | None, environ: Mapping[str, str]
) -> None:
    """Every rule; training_devices: None where the environment tells.

    Raises:
        UsageError: one is broken.
    """
    _check_engine(config)
    _check_times(config)
    _check_sampling(config)
    _check_prompts(config)
    _check_devices(config, _training(training_devices, environ))


def _check_engine(config: DecodeEvalConfig) -> None:
    engines.load(config.engine)
    started = not (config.command or config.base_url)
    if started and config.engine not in LAUNCHED:
        raise UsageError(
            f"decode_eval can't start engine {config.engine!r}, only {' and '.join(LAUNCHED)}; "
            "give command: or base_url:"
        )
    if config.command and config.base_url:
        raise UsageError("decode_eval has command and base_url; a server is started or it runs")


def _check_times(config: DecodeEvalConfig) -> None:
    if config.boot_timeout_s is not None and config.boot_timeout_s > config.timeout_s:
        raise UsageError(
            f"decode_eval.boot_timeout_s {config.boot_timeout_s:g} is more than timeout_s "
            f"{config.timeout_s:g}, the deadline of the whole eval"
        )
    for name in SECONDS:
        if not math.isfinite(getattr(config, name)):
            raise UsageError(f"decode_eval.{name} must be finite")


def _check_sampling(config: DecodeEvalConfig) -> None:
    if twice := [name for name in ("temperature", "top_p") if name in config.sampling]:
        raise UsageError(f"decode_eval.sampling repeats {', '.join(twice)}, a field of its own")


def _check_prompts(config: DecodeEvalConfig) -> None:
    sources = config.sources
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise UsageError(f"decode_eval.prompt_sets has a name twice: {', '.join(names)}")
    for source in sources:
        where = f"decode_eval prompt set {source.name!r}"
        if not source.input_data:
            raise UsageError(f"{where} lacks input_data")
        if source.prompt_column and source.token_ids_column:
            raise UsageError(f"{where}: prompt_column or token_ids_column, not both")
        if source.token_ids_column and source.endpoint != "completions":
            raise UsageError(f"{where}: token ids are sent as they are: endpoint: completions")
        if source.endpoint == "completions" and not (
            source.prompt_column or source.token_ids_column
        ):
            raise UsageError(f"{where}: completions needs prompt_column or token_ids_column")
        trained_on = config.train_data and _same(source.input_data, config.train_data)
        if trained_on and "[" not in source.split and not config.allow_training_prompts:
            raise UsageError(
                f"{where}: {source.input_data} is the training data, and a head that has seen the "
                "prompts looks better than it is; give held-out prompts, a split with a slice "
                "that training leaves out, or allow_training_prompts: true"
            )


def _same(one: str, other: str) -> bool:
    if Path(one).exists() and Path(other).exists():
        return Path(one).samefile(other)
    return one == other


def _training(given: Sequence[str] | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Devices that this job trains on: each local rank takes the one of its number."""
    if given is not None:
        return tuple(map(str, given))
    # A launcher that doesn't say how many ranks are here may have put all of them here.
    ranks = int(environ.get("LOCAL_WORLD_SIZE", environ.get("WORLD_SIZE", "1")))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(map(str, range(ranks)))
    return tuple(word.strip() for word in visible.split(",") if word.strip())[:ranks]


def _check_devices(config: DecodeEvalConfig, training: Sequence[str]) -> None:
    reserved = config.devices
    if len(set(reserved)) < len(reserved):
        raise UsageError(f"decode_eval.cuda_visible_devices {','.join(reserved)} repeats a device")
    if reserved and config.tensor_parallel_size > len(reserved):
        raise UsageError(
            f"decode_eval.tensor_parallel_size {config.tensor_parallel_size} needs as many devices,"
            f" cuda_visible_devices has {len(reserved)}: {','.join(reserved)}"
        )
    if shared := [device for device in reserved if device in training]:
        raise UsageError(
            f"decode_eval.cuda_visible_devices {','.join(reserved)} shares {','.join(shared)} with "
            f"training, which uses {','.join(training)}; leave a device out of training (fewer "
            "processes, or CUDA_VISIBLE_DEVICES) and name that one"
        )
    kinds = {device.isdigit() for device in (*reserved, *training)}
    if reserved and len(kinds) > 1:
        raise UsageError(
            f"decode_eval.cuda_visible_devices {','.join(reserved)} can't be compared with "
            f"training's {','.join(training)}: write both as numbers or both as UUIDs"
        )
