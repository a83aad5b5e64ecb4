"""Converters on small snapshots: what is taken, under which names, and what is refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.decode_torch import files
from tests.decode_torch.files import D2T, EAGLE3, SIZES, T2D, Shapes
from utils.decode_eval import converters, weights
from utils.decode_eval.converters import eagle3
from utils.errors import UsageError

PLAIN: Shapes = {
    "model.embed_tokens.weight": (16, 8),
    "model.norm.weight": (8,),
    "lm_head.weight": (16, 8),
    **files.layer("model.layers.0"),
}
MIMO: Shapes = {
    "model.embed_tokens.weight": (16, 8),
    "lm_head.weight": (16, 8),
    "model.mtp_layers.0.input_proj.weight": (8, 16),
    "model.mtp_layers.0.token_layernorm.weight": (8,),
    "model.mtp_layers.0.hidden_layernorm.weight": (8,),
    "model.mtp_layers.0.final_layernorm.weight": (8,),
    **files.layer("model.mtp_layers.0", more=files.QKV_BIASES),
}
SPECULATORS: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "draft_vocab_size": 4,
    "norm_before_residual": False,
    "speculators_config": {
        "proposal_methods": [{"speculative_tokens": 3}],
        "verifier": {"name_or_path": "target"},
    },
    "transformer_layer_config": {**SIZES, "model_type": "llama"},
}


def without(shapes: Shapes, name: str) -> Shapes:
    return {key: shape for key, shape in shapes.items() if key != name}


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return files.write(tmp_path / "head", EAGLE3, files.eagle3(), D2T, T2D)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_eagle3_head_is_linked_as_it_is(tmp_path: Path, head: Path, engine: str) -> None:
    draft = converters.convert(head, "somewhere/else", engine, tmp_path / "out")
    assert (draft.method, draft.path) == ("eagle3", tmp_path / "out")
    assert os.path.samefile(head / weights.FILE, draft.path / weights.FILE)
    config = json.loads((draft.path / weights.CONFIG).read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["tie_word_embeddings"] is False


def test_a_prefix_is_taken_off_and_no_byte_changes(tmp_path: Path) -> None:
    prefixed = {f"model.{name}": shape for name, shape in files.eagle3().items()}
    config = {**EAGLE3, "architectures": ["LlamaEagle3DraftModel"]}
    source = files.write(tmp_path / "head", config, prefixed, D2T, T2D)
    draft = converters.convert(source, "", "vllm", tmp_path / "out")
    old, new = weights.read(source), weights.read(draft.path)
    assert set(new.tensors) == {*files.eagle3(), "d2t", "t2d"}
    assert new.metadata == {"format": "pt"}
    for name, tensor in old.tensors.items():
        renamed = new.tensors[name.removeprefix("model.")]
        assert (renamed.dtype, renamed.shape) == (tensor.dtype, tensor.shape)
        assert _bytes(new, renamed) == _bytes(old, tensor)


def _bytes(found: weights.Weights, tensor: weights.Tensor) -> bytes:
    raw = found.path.read_bytes()[found.offset :]
    return raw[tensor.start : tensor.end]


def test_a_dry_run_writes_nothing(tmp_path: Path, head: Path) -> None:
    assert converters.plan(head, "", "vllm").method == "eagle3"
    assert [path.name for path in tmp_path.iterdir()] == ["head"]


@pytest.mark.parametrize(
    ("config", "shapes", "method"),
    [
        ({**SIZES, "architectures": ["LlamaForCausalLM"]}, PLAIN, "draft_model"),
        (
            {**SIZES, "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True},
            without(PLAIN, "lm_head.weight"),
            "draft_model",
        ),
        (
            {**SIZES, "architectures": ["Qwen2ForCausalLM"]},
            {**PLAIN, **files.layer("model.layers.0", more=files.QKV_BIASES)},
            "draft_model",
        ),
        (
            {**SIZES, "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1},
            MIMO,
            "mtp",
        ),
        (SPECULATORS, files.eagle3("layers.0"), "eagle3"),
        (
            {**EAGLE3, "norm_before_fc": True},
            {**files.eagle3(), "input_norm.weight": (24,)},
            "eagle3",
        ),
        ({**EAGLE3, "draft_vocab_size": 16}, without(files.eagle3(), "lm_head.weight"), "eagle3"),
    ],
    ids=["plain", "tied", "biased", "mtp", "speculators", "normed", "whole_vocabulary"],
)
def test_kinds(tmp_path: Path, config: Any, shapes: Shapes, method: str) -> None:
    mapped = config.get("draft_vocab_size") == 4
    source = files.write(tmp_path / "draft", config, shapes, D2T if mapped else None)
    assert converters.convert(source, "", "vllm", tmp_path / "out").method == method


EAGLE3_SHAPES = files.eagle3()
REFUSED: dict[str, tuple[Any, Shapes, str]] = {
    "unknown": ({**EAGLE3, "architectures": ["DeepseekV3Eagle3"]}, EAGLE3_SHAPES, "no converter"),
    "unsaid": ({**EAGLE3, "architectures": None}, EAGLE3_SHAPES, "no converter"),
    "missing": (EAGLE3, without(EAGLE3_SHAPES, "norm.weight"), "missing norm.weight"),
    "no_lm_head": (EAGLE3, without(EAGLE3_SHAPES, "lm_head.weight"), "missing lm_head.weight"),
    "too_many": (EAGLE3, {**EAGLE3_SHAPES, "router.weight": (8, 8)}, "nothing takes router.weight"),
    "two_for_one": (EAGLE3, {**EAGLE3_SHAPES, "model.norm.weight": (8,)}, "one name"),
    "shape": ({**EAGLE3, "intermediate_size": 10}, EAGLE3_SHAPES, r"shape \[8, 12\].*\[8, 10\]"),
    "two_layers": ({**EAGLE3, "num_hidden_layers": 2}, EAGLE3_SHAPES, "num_hidden_layers is 2"),
    "no_size": ({**EAGLE3, "hidden_size": None}, EAGLE3_SHAPES, "hidden_size is None"),
    "parallel": ({**EAGLE3, "parallel_drafting": True}, EAGLE3_SHAPES, "P-EAGLE"),
    "other_speculator": ({**SPECULATORS, "speculators_model_type": "dflash"}, {}, "'dflash'"),
    "other_layer": (
        {**SPECULATORS, "transformer_layer_config": {**SIZES, "model_type": "qwen3"}},
        {},
        "'qwen3'",
    ),
    "no_proposal": ({**SPECULATORS, "speculators_config": {}}, {}, "proposal_methods"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path: Path, case: str) -> None:
    config, shapes, why = REFUSED[case]
    source = files.write(tmp_path / "draft", config, shapes, D2T)
    with pytest.raises(UsageError, match=why):
        converters.convert(source, "", "vllm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("d2t", "t2d", "why"),
    [
        ([1, 3, 5, 15], None, "its own index"),  # ids instead of offsets: 3 + 15 is out of range
        ([1, 0, 3, 12], None, "its own index"),  # token 1 twice
        (D2T, [1, *T2D[1:]], "t2d disagree: 0 ids are in d2t alone, 1 in t2d alone"),
    ],
)
def test_vocabularies_are_compared(tmp_path: Path, d2t: Any, t2d: Any, why: str) -> None:
    source = files.write(tmp_path / "head", EAGLE3, files.eagle3(), d2t, t2d)
    with pytest.raises(UsageError, match=why):
        converters.plan(source, "", "vllm")


MIMO_CONFIG = {**SIZES, "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
BY_KIND: dict[str, tuple[Any, Shapes]] = {
    "eagle3": (EAGLE3, EAGLE3_SHAPES),
    "speculators": (SPECULATORS, files.eagle3("layers.0")),
    "draft_model": ({**SIZES, "architectures": ["LlamaForCausalLM"]}, PLAIN),
    "mtp": (MIMO_CONFIG, MIMO),
}


@pytest.mark.parametrize("kind", BY_KIND)
def test_a_draft_of_another_target_is_refused(tmp_path: Path, kind: str) -> None:
    config, shapes = BY_KIND[kind]
    source = files.write(
        tmp_path / "draft", config, shapes, D2T if kind in ("eagle3", "speculators") else None
    )
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps({"vocab_size": 32, "hidden_size": 8}))
    with pytest.raises(UsageError, match="vocab_size is 16, the target's is 32"):
        converters.plan(source, str(target), "vllm")


def test_a_speculators_head_is_checked_for_its_vocabulary(tmp_path: Path) -> None:
    source = files.write(tmp_path / "d", SPECULATORS, files.eagle3("layers.0"), [1, 3, 5, 15])
    with pytest.raises(UsageError, match="its own index"):
        converters.plan(source, "", "vllm")


@pytest.mark.parametrize(
    ("config", "shapes", "why"),
    [
        (SPECULATORS, files.eagle3("layers.0"), "doesn't read the speculators format"),
        ({**EAGLE3, "attention_bias": True}, EAGLE3_SHAPES, "has no biases"),
        (MIMO_CONFIG, MIMO, "has no converter for sglang"),
    ],
)
def test_what_sglang_would_misread_is_refused(
    tmp_path: Path, config: Any, shapes: Shapes, why: str
) -> None:
    source = files.write(tmp_path / "d", config, shapes, D2T)
    with pytest.raises(UsageError, match=why):
        converters.plan(source, "", "sglang")


def test_a_plug_in_that_forgets_a_tensor_is_caught(
    tmp_path: Path, head: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(source: converters.Source, engine: str) -> converters.Plan:
        made = eagle3.plan(source, engine)
        return replace(made, names={n: new for n, new in made.names.items() if n != "t2d"})

    kind = SimpleNamespace(matches=lambda config: True, plan=forgetful)
    monkeypatch.setattr(converters, "plugins", lambda: {"forgetful": kind})
    with pytest.raises(UsageError, match="nothing is made of t2d"):
        converters.plan(head, "", "vllm")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda raw: raw[:-1], "cut short"),
        (lambda raw: raw + b"x", "its header says"),
        (lambda raw: raw[:20], "not a safetensors file"),
        (lambda raw: b"", "not a safetensors file"),
        (lambda raw: b"\xff" * 8 + raw[8:], "a header of"),
        (lambda raw: raw[:8] + b"[" + raw[9:], "not a safetensors file"),
    ],
)
def test_broken_files(head: Path, damage: Any, why: str) -> None:
    path = head / weights.FILE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UsageError, match=why):
        weights.read(head)


def test_weights_in_shards_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(UsageError, match="in one file"):
        weights.read(tmp_path)


def test_the_digest_is_of_the_tensors_alone(tmp_path: Path) -> None:
    """Neither the layout of the file nor its folder; a name, a shape or a byte changes it."""
    shapes: Shapes = {"a": (2, 3), "b": (3,)}
    one = files.write(tmp_path / "one", {}, shapes)
    same = files.write(tmp_path / "same", {"x": 1}, shapes)
    named = files.write(tmp_path / "named", {}, {"a": (2, 3), "c": (3,)})
    shaped = files.write(tmp_path / "shaped", {}, {"a": (3, 2), "b": (3,)})
    changed = files.write(tmp_path / "changed", {}, shapes)
    raw = (changed / weights.FILE).read_bytes()
    (changed / weights.FILE).write_bytes(raw[:-1] + b"\x07")
    other = files.write(tmp_path / "other", {}, {"b": (3,), "a": (2, 3)})  # bytes differ too
    digests = [
        weights.digest_of(weights.read(p)) for p in (one, same, named, shaped, changed, other)
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 5
