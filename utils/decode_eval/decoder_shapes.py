"""Names and shapes of a Llama-type decoder layer, which several kinds of draft are built of."""

from __future__ import annotations

from utils.errors import UsageError
from utils.records import Json

Shapes = dict[str, tuple[int, ...]]


def layer(
    prefix: str,
    config: Json,
    *,
    wide: int = 1,
    qkv_bias: bool = False,
    o_bias: bool = False,
    head_norms: bool = False,
) -> Shapes:
    """One layer's tensors.

    wide: how many vectors of hidden_size are fed side by side into attention. head_norms: norms of
    queries and keys, as Qwen3 has them.

    Raises:
        UsageError: a size is missing in config.json.
    """
    size, inner, heads = numbers(config, "hidden_size", "intermediate_size", "num_attention_heads")
    head = config.get("head_dim") or size // heads
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    rows = {"q_proj": heads * head}
    rows["k_proj"] = rows["v_proj"] = (config.get("num_key_value_heads") or heads) * head
    shapes: Shapes = {f"{attention}.{name}.weight": (n, wide * size) for name, n in rows.items()}
    shapes |= {
        f"{attention}.o_proj.weight": (size, heads * head),
        f"{mlp}.gate_proj.weight": (inner, size),
        f"{mlp}.up_proj.weight": (inner, size),
        f"{mlp}.down_proj.weight": (size, inner),
        f"{prefix}.input_layernorm.weight": (size,),
        f"{prefix}.post_attention_layernorm.weight": (size,),
    }
    if qkv_bias:
        shapes |= {f"{attention}.{name}.bias": (n,) for name, n in rows.items()}
    if o_bias:
        shapes[f"{attention}.o_proj.bias"] = (size,)
    if head_norms:
        shapes |= {f"{attention}.{name}_norm.weight": (head,) for name in ("q", "k")}
    return shapes


def numbers(config: Json, *names: str) -> list[int]:
    """Whole numbers that config.json must have.

    Raises:
        UsageError: one is missing.
    """
    for name in names:
        if type(config.get(name)) is not int:
            raise UsageError(f"config.json: {name} is {config.get(name)!r}, want a whole number")
    return [config[name] for name in names]
