from __future__ import annotations

import pytest

from utils.errors import UsageError
from utils.recipes import names
from utils.recipes.names import RecipeName

NAMES = {
    "smollm2_bf16_cpu_vllm.sh": RecipeName("smollm2", "bf16", "cpu", "vllm"),
    "dsv4_fp4_b300_sglang_mtp.sh": RecipeName("dsv4", "fp4", "b300", "sglang", speculative=True),
    "qwen3.5_fp8_h200_trt.sh": RecipeName("qwen3.5", "fp8", "h200", "trt"),
    "dsv4-0813_fp4_gb200_dynamo-vllm_mtp.sh": RecipeName(
        "dsv4-0813", "fp4", "gb200", "dynamo-vllm", speculative=True
    ),
}


@pytest.mark.parametrize(("file_name", "facts"), NAMES.items())
def test_round_trip(file_name: str, facts: RecipeName) -> None:
    assert names.parse(file_name) == facts
    assert facts.file_name == file_name


@pytest.mark.parametrize("engine", names.ENGINES)
@pytest.mark.parametrize("precision", names.PRECISIONS)
def test_round_trip_of_all_kinds(engine: str, precision: str) -> None:
    for speculative in (False, True):
        facts = RecipeName("m", precision, "b200", engine, speculative)
        assert names.parse(facts.file_name) == facts


@pytest.mark.parametrize(
    "file_name",
    [
        "smollm2_bf16_cpu.sh",
        "smollm2_bf16_cpu_vllm",
        "smollm2_bf16_cpu_vllm_eagle.sh",
        "smollm2_bf17_cpu_vllm.sh",
        "smollm2_bf16_cpu_llama.sh",
        "SmolLM2_bf16_cpu_vllm.sh",
        "a_b_bf16_cpu_vllm.sh",
        "-x_bf16_cpu_vllm.sh",
        "smollm2_bf16_cpu_vllm.sh\n",
        "",
    ],
)
def test_refuses_other_names(file_name: str) -> None:
    with pytest.raises(UsageError, match="is not a recipe name: want <model>_"):
        names.parse(file_name)


def test_dynamo_workers_are_the_engines_own() -> None:
    assert names.parse("m_fp4_gb200_dynamo-sglang.sh").engine_family == "sglang"
    assert names.parse("m_fp4_gb200_vllm.sh").engine_family == "vllm"
