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


EAGLE: Shapes = without(
    {"fc.weight": (8, 16), **files.layer("layers.0")}, "layers.0.input_layernorm.weight"
)


PARALLEL = {**EAGLE3, "num_hidden_layers": 2, "parallel_drafting": True, "pard_token": 0}
PEAGLE: Shapes = {
    **files.eagle3("layers.0"),
    **files.layer("layers.1", more={"hidden_norm.weight": (8,)}),
    "mask_hidden": (1, 24),
}
OTHER_SIZE: Shapes = {**files.eagle3(), "fc.weight": (8, 12)}
DFLASH: dict[str, Any] = {
    **SIZES,
    "architectures": ["Qwen3DFlashDraftModel"],
    "num_hidden_layers": 2,
    "dflash_config": {"mask_token_id": 0, "target_layer_ids": [1, 2, 3]},
}
HEAD_NORMS: Shapes = {"self_attn.q_norm.weight": (4,), "self_attn.k_norm.weight": (4,)}
DRAFTED: Shapes = {
    "fc.weight": (8, 24),
    "norm.weight": (8,),
    "hidden_norm.weight": (8,),
    **files.layer("layers.0", more=HEAD_NORMS),
    **files.layer("layers.1", more=HEAD_NORMS),
}


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
        assert _bytes(renamed) == _bytes(tensor)


def _bytes(tensor: weights.Tensor) -> bytes:
    return tensor.file.read_bytes()[tensor.start : tensor.start + tensor.size]


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
        ({**SIZES, "architectures": ["EagleLlamaForCausalLM"]}, EAGLE, "eagle"),
        (SPECULATORS, files.eagle3("layers.0"), "eagle3"),
        (
            {**EAGLE3, "norm_before_fc": True},
            {**files.eagle3(), "input_norm.weight": (24,)},
            "eagle3",
        ),
        (PARALLEL, PEAGLE, "eagle3"),
        ({**PARALLEL, "num_hidden_layers": 2}, {**PEAGLE, "mask_hidden": (1, 1, 24)}, "eagle3"),
        (DFLASH, DRAFTED, "dflash"),
        (
            {**EAGLE3, "eagle_config": {"norm_before_fc": True}},
            {**files.eagle3(), "input_norm.weight": (24,)},
            "eagle3",
        ),
        ({**EAGLE3, "draft_vocab_size": 16}, without(files.eagle3(), "lm_head.weight"), "eagle3"),
    ],
    ids=[
        *("plain", "tied", "biased", "eagle", "speculators", "normed", "parallel"),
        *("parallel_row", "dflash", "normed_by_eagle", "whole_vocabulary"),
    ],
)
def test_kinds(tmp_path: Path, config: Any, shapes: Shapes, method: str) -> None:
    mapped = config.get("draft_vocab_size") == 4
    source = files.write(tmp_path / "draft", config, shapes, D2T if mapped else None)
    draft = converters.convert(source, "", "vllm", tmp_path / "out")
    assert draft.method == method
    parallel = {"parallel_drafting": "true"} if config.get("parallel_drafting") else {}
    assert draft.speculation == parallel
    (written,) = json.loads((draft.path / weights.CONFIG).read_text())["architectures"]
    assert written == ("DFlashDraftModel" if method == "dflash" else config["architectures"][0])


@pytest.mark.parametrize("said", ["EagleLlamaForCausalLM", "LlamaForCausalLMEagle"])
def test_engines_are_told_an_eagle_1_head_by_their_own_names(tmp_path: Path, said: str) -> None:
    config = {**SIZES, "architectures": [said]}
    source = files.write(tmp_path / "vllm", config, EAGLE)
    found = [converters.plan(source, "", "vllm").config]
    source = files.write(tmp_path / "sglang", config, {**EAGLE, "fc.bias": (8,)})
    found.append(converters.plan(source, "", "sglang").config)
    assert [written["architectures"] for written in found] == [
        ["EagleLlamaForCausalLM"],
        ["LlamaForCausalLMEagle"],
    ]


EAGLE3_SHAPES = files.eagle3()
IDS = eagle3.LAYER_IDS
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
    "parallel_without_id": ({**PARALLEL, "pard_token": None}, PEAGLE, "needs mask_token_id or"),
    "parallel_without_mask": (PARALLEL, without(PEAGLE, "mask_hidden"), "missing mask_hidden"),
    "parallel_mask": (PARALLEL, {**PEAGLE, "mask_hidden": (23,)}, r"mask_hidden has shape \[23\]"),
    "mask_alone": (EAGLE3, {**EAGLE3_SHAPES, "mask_hidden": (24,)}, "nothing takes mask_hidden"),
    "parallel_layer": (PARALLEL, without(PEAGLE, "layers.1.hidden_norm.weight"), "layers.1.hidden"),
    "other_size": ({**EAGLE3, "target_hidden_size": 4}, OTHER_SIZE, "missing embed_tokens.weight"),
    "other_size_head": (
        {**EAGLE3, "target_hidden_size": 4, "draft_vocab_size": 16},
        {**without(OTHER_SIZE, "lm_head.weight"), "embed_tokens.weight": (16, 8)},
        "missing lm_head.weight",
    ),
    "dflash_without_layers": ({**DFLASH, "dflash_config": {"mask_token_id": 0}}, {}, "target_lay"),
    "dflash_without_id": ({**DFLASH, "dflash_config": {}}, {}, "mask_token_id is None"),
    "dflash_sinks": ({**DFLASH, "add_swa_attention_sink_bias": True}, DRAFTED, "sink biases"),
    "dflash_sink": (
        {**DFLASH, "dflash_config": {**DFLASH["dflash_config"], "attention_sink_bias": True}},
        DRAFTED,
        "sink biases",
    ),
    "dflash_no_lm_head": ({**DFLASH, "draft_vocab_size": 4}, DRAFTED, "missing lm_head.weight"),
    "dflash_ids": (
        {**DFLASH, "draft_vocab_size": 4, "vocab_size": 15},
        {**DRAFTED, "lm_head.weight": (4, 8)},
        "its own index",
    ),
    "no_d2t": (
        {**EAGLE3, "draft_vocab_size": 5},
        {**EAGLE3_SHAPES, "lm_head.weight": (5, 8)},
        "missing d2t",
    ),
    "dflash_layer": (DFLASH, without(DRAFTED, "layers.1.self_attn.q_norm.weight"), "layers.1.self"),
    "without_features": (
        {**EAGLE3, "eagle_config": {"use_aux_hidden_state": False}},
        EAGLE3_SHAPES,
        "fc would not be used",
    ),
    "two_sets_of_layers": (
        {**EAGLE3, IDS: [2, 3], "eagle_config": {IDS: [2, 3]}},
        EAGLE3_SHAPES,
        "want them one apart",
    ),
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
    d2t = D2T if config.get("draft_vocab_size") == 4 else None
    source = files.write(tmp_path / "draft", config, shapes, d2t)
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


BY_KIND: dict[str, tuple[Any, Shapes]] = {
    "eagle3": (EAGLE3, EAGLE3_SHAPES),
    "speculators": (SPECULATORS, files.eagle3("layers.0")),
    "draft_model": ({**SIZES, "architectures": ["LlamaForCausalLM"]}, PLAIN),
    "eagle": ({**SIZES, "architectures": ["EagleLlamaForCausalLM"]}, EAGLE),
    "dflash": (DFLASH, DRAFTED),
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
        ({**EAGLE3, "attention_bias": True}, EAGLE3_SHAPES, "attention_bias: SGLang"),
        ({**EAGLE3, "norm_before_residual": True}, EAGLE3_SHAPES, "norm_before_residual: SGLang"),
        (PARALLEL, PEAGLE, "parallel_drafting: SGLang"),
        (DFLASH, DRAFTED, "DFlash drafts have no converter for sglang"),
        ({**SIZES, "architectures": ["EagleLlamaForCausalLM"]}, EAGLE, "missing fc.bias"),
    ],
)
def test_what_sglang_would_misread_is_refused(
    tmp_path: Path, config: Any, shapes: Shapes, why: str
) -> None:
    source = files.write(tmp_path / "d", config, shapes, None if shapes is EAGLE else D2T)
    with pytest.raises(UsageError, match=why):
        converters.plan(source, "", "sglang")


@pytest.mark.parametrize("said", ["dtype", "torch_dtype"])
def test_the_draft_is_computed_in_the_targets_type(tmp_path: Path, said: str) -> None:
    """SGLang believes the draft's config.json; a head in float32 would run in float16."""
    config = {**EAGLE3, "torch_dtype": "float32"}
    source = files.write(tmp_path / "head", config, files.eagle3(), D2T)
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps({**SIZES, said: "bfloat16"}))
    written = converters.plan(source, str(target), "sglang").config
    assert written["dtype"] == "bfloat16" and "torch_dtype" not in written
    assert converters.plan(source, "some/model", "sglang").config["torch_dtype"] == "float32"


@pytest.mark.parametrize(
    "said",
    [
        {IDS: [2, 15]},  # layers whose inputs are fed in
        {"eagle_config": {IDS: [1, 14]}},  # whose outputs are
        {IDS: [2, 15], "eagle_config": {IDS: [1, 14]}},
    ],
)
def test_engines_are_told_the_same_layers_as_each_counts_them(tmp_path: Path, said: Any) -> None:
    shapes = {**files.eagle3(), "fc.weight": (8, 16)}
    source = files.write(tmp_path / "head", {**EAGLE3, **said}, shapes, D2T)
    vllm, sglang = (converters.plan(source, "", name).config for name in ("vllm", "sglang"))
    assert vllm[IDS] == [2, 15] and IDS not in vllm["eagle_config"]
    assert sglang[IDS] is None and sglang["eagle_config"][IDS] == [1, 14]
    assert vllm["num_aux_hidden_states"] == sglang["num_aux_hidden_states"] == 2


@pytest.mark.parametrize(("lacks", "rows"), [("lm_head.weight", None), ("t2d", 16)])
def test_sglang_is_told_whose_output_head_it_is(
    tmp_path: Path, lacks: str, rows: int | None
) -> None:
    """Only without a draft_vocab_size does it take the target's."""
    config = {**EAGLE3, "draft_vocab_size": 16}
    shapes = without({**files.eagle3(), "lm_head.weight": (16, 8)}, lacks)
    source = files.write(tmp_path / "head", config, shapes)
    assert converters.plan(source, "", "sglang").config["draft_vocab_size"] == rows
    assert converters.plan(source, "", "vllm").config["draft_vocab_size"] == 16


def test_a_path_that_vllm_takes_for_another_method_is_refused(tmp_path: Path, head: Path) -> None:
    config = {**SIZES, "architectures": ["LlamaForCausalLM"]}
    plain = files.write(tmp_path / "plain", config, PLAIN)
    out = tmp_path / "Eagle3_runs" / "served"
    with pytest.raises(UsageError, match="'eagle3' for another kind than draft_model"):
        converters.convert(plain, "", "vllm", out)
    assert converters.convert(plain, "", "sglang", out).method == "draft_model"
    assert converters.convert(head, "", "vllm", out).method == "eagle3"


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


FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
HALVES = list(files.eagle3())[:7], [*list(files.eagle3())[7:], "d2t", "t2d"]


@pytest.fixture
def shards(head: Path) -> Path:
    return files.split(head, *HALVES)


def test_shards_are_linked_as_they_are(tmp_path: Path, shards: Path) -> None:
    whole = files.write(tmp_path / "whole", EAGLE3, files.eagle3(), D2T, T2D)
    assert weights.digest_of(weights.read(shards)) == weights.digest_of(weights.read(whole))
    draft = converters.convert(shards, "", "vllm", tmp_path / "out")
    assert {path.name for path in draft.path.iterdir()} == {path.name for path in shards.iterdir()}
    for path in shards.glob("*.safetensors"):
        assert os.path.samefile(path, draft.path / path.name)


def test_shards_that_need_other_names_become_one_file(tmp_path: Path) -> None:
    names = {f"model.{name}": shape for name, shape in files.eagle3().items()}
    whole = files.write(tmp_path / "draft", EAGLE3, names, D2T, T2D)
    before = weights.read(whole)
    raw = {name: _bytes(tensor) for name, tensor in before.tensors.items()}
    halves = [[n if n in ("d2t", "t2d") else f"model.{n}" for n in half] for half in HALVES]
    out = converters.convert(files.split(whole, *halves), "", "vllm", tmp_path / "out").path
    assert [path.name for path in sorted(out.iterdir())] == [weights.CONFIG, weights.FILE]
    after = weights.read(out).tensors
    assert {f"model.{n}": _bytes(after[n]) for n in files.eagle3()} == {
        name: part for name, part in raw.items() if name.startswith("model.")
    }


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda f: (f / SECOND).unlink(), f"names {SECOND}, which .* lacks"),
        (lambda f: (f / SECOND).write_bytes((f / FIRST).read_bytes()), "disagree on d2t"),
        (lambda f: listed(f, {"norm.weight": None}), "disagree on norm.weight"),
        (lambda f: listed(f, {"t2d": FIRST}), "disagree on t2d"),
        (lambda f: listed(f, {"more.weight": FIRST}), "disagree on more.weight"),
        (lambda f: listed(f, {"norm.weight": f"../{f.name}/{SECOND}"}), "of the same folder"),
        (lambda f: (f / weights.INDEX).write_text('{"weight_map": {}}'), "no index of weights"),
        (lambda f: (f / weights.INDEX).write_text("[]"), "no index of weights"),
        (lambda f: (f / weights.FILE).write_bytes(b""), "remove the one that is stale"),
    ],
)
def test_shards_that_are_not_as_the_index_says(shards: Path, damage: Any, why: str) -> None:
    damage(shards)
    with pytest.raises(UsageError, match=why):
        weights.read(shards)


def listed(folder: Path, changed: dict[str, str | None]) -> None:
    """The index with other files for some tensors; None: the tensor isn't in it."""
    path = folder / weights.INDEX
    placed = {**json.loads(path.read_text())["weight_map"], **changed}
    kept = {name: file for name, file in placed.items() if file}
    path.write_text(json.dumps({"weight_map": kept}))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UsageError, match="save them with safetensors"):
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
