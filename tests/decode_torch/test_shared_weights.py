"""What an engine takes from the target must be the target's in the snapshot too; MTP heads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.decode_torch import files
from tests.decode_torch.files import EAGLE3, SIZES, Shapes
from utils.decode_eval import converters, weights
from utils.errors import UsageError

# First, so that files.write gives them the bytes that it gives the target's.
BOTH: Shapes = {"model.embed_tokens.weight": (16, 8), "lm_head.weight": (16, 8)}
GATED: Shapes = {
    "self_attn.q_proj.weight": (16, 8),
    "self_attn.q_norm.weight": (4,),
    "self_attn.k_norm.weight": (4,),
}
QWEN: Shapes = {
    "mtp.fc.weight": (8, 16),
    "mtp.norm.weight": (8,),
    "mtp.pre_fc_norm_hidden.weight": (8,),
    "mtp.pre_fc_norm_embedding.weight": (8,),
}


def expert(prefix: str, inner: int) -> Shapes:
    return {
        f"{prefix}.gate_proj.weight": (inner, 8),
        f"{prefix}.up_proj.weight": (inner, 8),
        f"{prefix}.down_proj.weight": (8, inner),
    }


def attention_and_norms(prefix: str, more: Shapes) -> Shapes:
    found = files.layer(prefix, more=more)
    return {name: shape for name, shape in found.items() if ".mlp." not in name}


DEEPSEEK_LAYER = "model.layers.1"
DEEPSEEK: Shapes = {
    f"{DEEPSEEK_LAYER}.embed_tokens.weight": (16, 8),
    f"{DEEPSEEK_LAYER}.shared_head.head.weight": (16, 8),
    f"{DEEPSEEK_LAYER}.shared_head.norm.weight": (8,),
    f"{DEEPSEEK_LAYER}.enorm.weight": (8,),
    f"{DEEPSEEK_LAYER}.hnorm.weight": (8,),
    f"{DEEPSEEK_LAYER}.eh_proj.weight": (8, 16),
    f"{DEEPSEEK_LAYER}.input_layernorm.weight": (8,),
    f"{DEEPSEEK_LAYER}.post_attention_layernorm.weight": (8,),
    f"{DEEPSEEK_LAYER}.self_attn.q_a_proj.weight": (6, 8),
    f"{DEEPSEEK_LAYER}.self_attn.q_a_layernorm.weight": (6,),
    f"{DEEPSEEK_LAYER}.self_attn.q_b_proj.weight": (10, 6),
    f"{DEEPSEEK_LAYER}.self_attn.kv_a_proj_with_mqa.weight": (9, 8),
    f"{DEEPSEEK_LAYER}.self_attn.kv_a_layernorm.weight": (7,),
    f"{DEEPSEEK_LAYER}.self_attn.kv_b_proj.weight": (14, 7),
    f"{DEEPSEEK_LAYER}.self_attn.o_proj.weight": (8, 8),
    f"{DEEPSEEK_LAYER}.mlp.gate.weight": (2, 8),
    f"{DEEPSEEK_LAYER}.mlp.gate.e_score_correction_bias": (2,),
    **expert(f"{DEEPSEEK_LAYER}.mlp.experts.0", 5),
    **expert(f"{DEEPSEEK_LAYER}.mlp.experts.1", 5),
    **expert(f"{DEEPSEEK_LAYER}.mlp.shared_experts", 10),
}
DEEPSEEK_SIZES = {
    "n_routed_experts": 2,
    "n_shared_experts": 2,
    "moe_intermediate_size": 5,
    "q_lora_rank": 6,
    "kv_lora_rank": 7,
    "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 2,
    "v_head_dim": 4,
    "num_nextn_predict_layers": 1,
    "topk_method": "noaux_tc",
}
MTP: dict[str, tuple[dict[str, Any], Shapes]] = {
    "MiMoForCausalLM": (
        {"num_nextn_predict_layers": 1},
        {
            **BOTH,
            "model.mtp_layers.0.input_proj.weight": (8, 16),
            "model.mtp_layers.0.token_layernorm.weight": (8,),
            "model.mtp_layers.0.hidden_layernorm.weight": (8,),
            "model.mtp_layers.0.final_layernorm.weight": (8,),
            **files.layer("model.mtp_layers.0", more=files.QKV_BIASES),
        },
    ),
    "Ernie4_5_MoeForCausalLM": (
        {"num_nextn_predict_layers": 1},
        {
            **BOTH,
            "model.mtp_linear_proj.0.weight": (8, 16),
            "model.mtp_emb_norm.0.weight": (8,),
            "model.mtp_hidden_norm.0.weight": (8,),
            **files.layer("model.mtp_block.0"),
        },
    ),
    "Qwen3_5ForCausalLM": (
        {"mtp_num_hidden_layers": 2},
        {
            **BOTH,
            **QWEN,
            **files.layer("mtp.layers.0", more=GATED),
            **files.layer("mtp.layers.1", more=GATED),
        },
    ),
    "Qwen3NextForCausalLM": (
        {
            "num_nextn_predict_layers": 1,
            "num_experts": 2,
            "moe_intermediate_size": 5,
            "shared_expert_intermediate_size": 6,
        },
        {
            **BOTH,
            **QWEN,
            **attention_and_norms("mtp.layers.0", GATED),
            "mtp.layers.0.mlp.gate.weight": (2, 8),
            **expert("mtp.layers.0.mlp.experts.0", 5),
            **expert("mtp.layers.0.mlp.experts.1", 5),
            **expert("mtp.layers.0.mlp.shared_expert", 6),
            "mtp.layers.0.mlp.shared_expert_gate.weight": (1, 8),
        },
    ),
    "DeepseekV3ForCausalLM": (DEEPSEEK_SIZES, DEEPSEEK),
}


def config_of(architecture: str) -> dict[str, Any]:
    return {**SIZES, "architectures": [architecture], **MTP[architecture][0]}


def target_of(folder: Path, config: dict[str, Any], shapes: Shapes = BOTH) -> str:
    return str(files.write(folder, config, shapes))


@pytest.mark.parametrize("architecture", MTP)
def test_an_mtp_head_is_linked_as_it_is(tmp_path: Path, architecture: str) -> None:
    config = config_of(architecture)
    source = files.write(tmp_path / "head", config, MTP[architecture][1])
    target = target_of(tmp_path / "target", config)
    draft = converters.convert(source, target, "vllm", tmp_path / "out")
    assert draft.method == "mtp"
    assert (draft.path / weights.FILE).samefile(source / weights.FILE)
    assert json.loads((draft.path / weights.CONFIG).read_text()) == config


@pytest.mark.parametrize("architecture", MTP)
def test_every_tensor_of_an_mtp_head_is_wanted_and_shaped(
    tmp_path: Path, architecture: str
) -> None:
    config, shapes = config_of(architecture), MTP[architecture][1]
    target = target_of(tmp_path / "target", config)
    for name, shape in shapes.items():
        lacking = {key: value for key, value in shapes.items() if key != name}
        wrong = {**shapes, name: (*shape[:-1], shape[-1] + 1)}
        for index, (found, why) in enumerate(((lacking, f"missing {name}"), (wrong, "by config"))):
            source = files.write(tmp_path / f"{name}{index}", config, found)
            with pytest.raises(UsageError, match=why):
                converters.plan(source, target, "vllm")


def test_deepseeks_choice_of_experts_has_a_bias_by_one_method_alone(tmp_path: Path) -> None:
    config = {**config_of("DeepseekV3ForCausalLM"), "topk_method": "greedy"}
    source = files.write(tmp_path / "head", config, DEEPSEEK)
    with pytest.raises(UsageError, match=r"nothing takes .*e_score_correction_bias"):
        converters.plan(source, target_of(tmp_path / "target", config), "vllm")


def test_qwen_has_one_head_unless_it_says_more(tmp_path: Path) -> None:
    for architecture, why in (("Qwen3NextForCausalLM", None), ("MiMoForCausalLM", "is None")):
        config = config_of(architecture)
        del config["num_nextn_predict_layers"]
        source = files.write(tmp_path / architecture, config, MTP[architecture][1])
        target = target_of(tmp_path / f"target of {architecture}", config)
        if why is None:
            assert converters.plan(source, target, "vllm").method == "mtp"
            continue
        with pytest.raises(UsageError, match=why):
            converters.plan(source, target, "vllm")


def test_an_mtp_head_for_sglang_is_refused(tmp_path: Path) -> None:
    config = config_of("MiMoForCausalLM")
    source = files.write(tmp_path / "head", config, MTP["MiMoForCausalLM"][1])
    with pytest.raises(UsageError, match="no converter for sglang"):
        converters.plan(source, target_of(tmp_path / "target", config), "sglang")


@pytest.mark.parametrize(
    ("name", "other"), [("num_hidden_layers", 2), ("architectures", ["Qwen2ForCausalLM"])]
)
def test_the_head_of_another_model_is_refused(tmp_path: Path, name: str, other: Any) -> None:
    config = config_of("MiMoForCausalLM")
    source = files.write(tmp_path / "head", config, MTP["MiMoForCausalLM"][1])
    target = target_of(tmp_path / "target", {**config, name: other})
    with pytest.raises(UsageError, match=f"{name} is .*, the target's is"):
        converters.plan(source, target, "vllm")


def test_a_second_head_is_the_next_layer(tmp_path: Path) -> None:
    """And neither is taken for the target's embedding, in a target that has them too."""
    config = {**config_of("DeepseekV3ForCausalLM"), "num_nextn_predict_layers": 2}
    second = {name.replace(DEEPSEEK_LAYER, "model.layers.2"): s for name, s in DEEPSEEK.items()}
    first = f"{DEEPSEEK_LAYER}.embed_tokens.weight"
    target = target_of(tmp_path / "target", config, {**BOTH, first: (16, 8)})
    source = files.write(tmp_path / "one", config, DEEPSEEK)
    with pytest.raises(UsageError, match=r"missing model\.layers\.2\.eh_proj.weight"):
        converters.plan(source, target, "vllm")
    shapes = dict(sorted({**DEEPSEEK, **second}.items(), key=in_the_targets_place))
    with pytest.raises(UsageError, match=r"in place of model\.layers\.2"):
        converters.plan(files.write(tmp_path / "two", config, shapes), target, "vllm")


def in_the_targets_place(entry: tuple[str, tuple[int, ...]]) -> int:
    """The first head's copies where files.write gives them the bytes that it gives the target's."""
    copies = [f"{DEEPSEEK_LAYER}.embed_tokens.weight", f"{DEEPSEEK_LAYER}.shared_head.head.weight"]
    return copies.index(entry[0]) if entry[0] in copies else len(copies)


OWN: Shapes = {**files.eagle3(), "embed_tokens.weight": (16, 8), "lm_head.weight": (16, 8)}
WHOLE = {**EAGLE3, "draft_vocab_size": 16}
KINDS: dict[str, tuple[dict[str, Any], Shapes]] = {
    "mtp": (config_of("MiMoForCausalLM"), MTP["MiMoForCausalLM"][1]),
    "eagle": (
        {**SIZES, "architectures": ["LlamaForCausalLMEagle"]},
        {
            "fc.weight": (8, 16),
            "fc.bias": (8,),
            "embed_tokens.weight": (16, 8),
            **{n: s for n, s in files.layer("layers.0").items() if "input_layernorm" not in n},
        },
    ),
    "eagle3": (WHOLE, OWN),
    "eagle3 of the target's size": ({**WHOLE, "target_hidden_size": 8}, OWN),
    "eagle3 of another size": (
        {**WHOLE, "target_hidden_size": 4},
        {**OWN, "fc.weight": (8, 12)},
    ),
}


@pytest.mark.parametrize(
    ("engine", "kind", "target", "why"),
    [
        ("sglang", "eagle", BOTH, "target's embed_tokens.weight in place of"),
        ("sglang", "eagle3 of the target's size", BOTH, "embed_tokens.weight in place of"),
        ("sglang", "eagle3 of another size", BOTH, None),
        ("vllm", "mtp", {"lm_head.weight": (16, 8)}, "which is another"),
        ("vllm", "mtp", {**BOTH, "extra.embed_tokens.weight": (16, 8)}, "which is another"),
        ("vllm", "mtp", dict(reversed(BOTH.items())), "target's embed_tokens.weight in place of"),
        ("vllm", "mtp", None, "is no folder to compare it with"),
        ("sglang", "eagle3", BOTH, "target's embed_tokens.weight in place of"),
        ("sglang", "eagle3", None, "is no folder to compare it with"),
        ("vllm", "eagle3", None, None),  # keeps a head's own
    ],
)
def test_what_the_engine_would_replace_is_refused(
    tmp_path: Path, engine: str, kind: str, target: Shapes | None, why: str | None
) -> None:
    config, shapes = KINDS[kind]
    source = files.write(tmp_path / "d", config, shapes)
    named = (
        "some/model" if target is None else target_of(tmp_path / "t", {"vocab_size": 16}, target)
    )
    if why is None:
        assert converters.plan(source, named, engine).method == kind.split()[0]
        return
    with pytest.raises(UsageError, match=why):
        converters.plan(source, named, engine)


def test_a_target_whose_head_is_its_embedding(tmp_path: Path) -> None:
    config = {**config_of("Qwen3_5ForCausalLM"), "tie_word_embeddings": True}
    shapes = {n: s for n, s in MTP["Qwen3_5ForCausalLM"][1].items() if n != "lm_head.weight"}
    target = target_of(
        tmp_path / "t", config, {"model.language_model.embed_tokens.weight": (16, 8)}
    )
    source = files.write(tmp_path / "d", config, shapes)
    assert converters.plan(source, target, "vllm").method == "mtp"


NUMBERS = b"\x00\x3f\x80\x3f\xc0\x3f"  # 0.5, 1.0, 1.5
WIDER = b"\x00\x00\x00\x3f\x00\x00\x80\x3f\x00\x00\xc0\x3f"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("BF16", (3,), NUMBERS), ("BF16", (3,), NUMBERS), True),
        (("BF16", (3,), NUMBERS), ("BF16", (3,), NUMBERS[::-1]), False),
        (("BF16", (3,), NUMBERS), ("BF16", (1, 3), NUMBERS), False),
        (("BF16", (3,), NUMBERS), ("F32", (3,), WIDER), True),
        (("F32", (3,), WIDER), ("BF16", (3,), NUMBERS), True),
        (("F32", (3,), b"\x01" + WIDER[1:]), ("BF16", (3,), NUMBERS), False),
        (("F32", (3,), WIDER[:5] + b"\x01" + WIDER[6:]), ("BF16", (3,), NUMBERS), False),
        (("F32", (3,), WIDER[:-1] + b"\x3e"), ("BF16", (3,), NUMBERS), False),
        (("F32", (3,), WIDER[:-2] + b"\xc1\x3f"), ("BF16", (3,), NUMBERS), False),
        (("F32", (3,), WIDER), ("F16", (3,), NUMBERS), False),
        (("F16", (3,), NUMBERS), ("BF16", (3,), NUMBERS), False),
    ],
)
def test_equal_numbers(tmp_path: Path, one: Any, other: Any, same: bool) -> None:
    files.write_tensors(tmp_path / weights.FILE, {"one": one, "other": other})
    found = weights.read(tmp_path).tensors
    assert weights.equal(found["one"], found["other"]) is same
