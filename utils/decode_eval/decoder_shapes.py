"""Names and shapes of decoder layers, of which several kinds of draft are built."""

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
    gated: bool = False,
) -> Shapes:
    """A Llama-type layer's tensors.

    wide: how many vectors of hidden_size are fed side by side into attention. head_norms: norms of
    queries and keys, as Qwen3 has them. gated: a gate for attention's output beside the queries.

    Raises:
        UsageError: a size is missing in config.json.
    """
    shapes = _attention(prefix, config, wide, head_norms, gated)
    shapes |= mlp(f"{prefix}.mlp", config, "intermediate_size")
    attention = f"{prefix}.self_attn"
    if qkv_bias:
        for name in ("q_proj", "k_proj", "v_proj"):
            shapes[f"{attention}.{name}.bias"] = shapes[f"{attention}.{name}.weight"][:1]
    if o_bias:
        shapes[f"{attention}.o_proj.bias"] = shapes[f"{attention}.o_proj.weight"][:1]
    return shapes


def qwen_moe_layer(prefix: str, config: Json) -> Shapes:
    """Qwen3-Next's full attention and its mixture of experts."""
    shapes = _attention(prefix, config, wide=1, head_norms=True, gated=True)
    experts, size = numbers(config, "num_experts", "hidden_size")
    shapes |= _experts(f"{prefix}.mlp", config, experts)
    shapes |= mlp(f"{prefix}.mlp.shared_expert", config, "shared_expert_intermediate_size")
    shapes[f"{prefix}.mlp.shared_expert_gate.weight"] = (1, size)
    return shapes


def deepseek_layer(prefix: str, config: Json) -> Shapes:
    """DeepSeek-V3's latent attention and its mixture of experts."""
    shapes = _norms(prefix, config) | _latent_attention(f"{prefix}.self_attn", config)
    experts, shared = numbers(config, "n_routed_experts", "n_shared_experts")
    shapes |= _experts(f"{prefix}.mlp", config, experts)
    if config.get("topk_method") == "noaux_tc":
        shapes[f"{prefix}.mlp.gate.e_score_correction_bias"] = (experts,)
    return shapes | mlp(f"{prefix}.mlp.shared_experts", config, "moe_intermediate_size", shared)


def mlp(prefix: str, config: Json, width: str, times: int = 1) -> Shapes:
    """width: the field of config.json that has it; times: how many stand side by side."""
    size, inner = numbers(config, "hidden_size", width)
    return {
        f"{prefix}.gate_proj.weight": (times * inner, size),
        f"{prefix}.up_proj.weight": (times * inner, size),
        f"{prefix}.down_proj.weight": (size, times * inner),
    }


def numbers(config: Json, *names: str) -> list[int]:
    """Whole numbers that config.json must have.

    Raises:
        UsageError: one is missing.
    """
    for name in names:
        if type(config.get(name)) is not int:
            raise UsageError(f"config.json: {name} is {config.get(name)!r}, want a whole number")
    return [config[name] for name in names]


def _norms(prefix: str, config: Json) -> Shapes:
    (size,) = numbers(config, "hidden_size")
    return {
        f"{prefix}.input_layernorm.weight": (size,),
        f"{prefix}.post_attention_layernorm.weight": (size,),
    }


def _attention(prefix: str, config: Json, wide: int, head_norms: bool, gated: bool) -> Shapes:
    """Grouped-query attention and a layer's norms."""
    size, heads = numbers(config, "hidden_size", "num_attention_heads")
    head = config.get("head_dim") or size // heads
    rows = {"q_proj": heads * head * (2 if gated else 1)}
    rows["k_proj"] = rows["v_proj"] = (config.get("num_key_value_heads") or heads) * head
    attention = f"{prefix}.self_attn"
    shapes = _norms(prefix, config)
    shapes |= {f"{attention}.{name}.weight": (n, wide * size) for name, n in rows.items()}
    shapes[f"{attention}.o_proj.weight"] = (size, heads * head)
    if head_norms:
        shapes |= {f"{attention}.{name}_norm.weight": (head,) for name in ("q", "k")}
    return shapes


def _latent_attention(prefix: str, config: Json) -> Shapes:
    size, heads, latent = numbers(config, "hidden_size", "num_attention_heads", "kv_lora_rank")
    plain, turned, value = numbers(config, "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    shapes: Shapes = {
        f"{prefix}.kv_a_proj_with_mqa.weight": (latent + turned, size),
        f"{prefix}.kv_a_layernorm.weight": (latent,),
        f"{prefix}.kv_b_proj.weight": (heads * (plain + value), latent),
        f"{prefix}.o_proj.weight": (size, heads * value),
    }
    queries, rank = heads * (plain + turned), config.get("q_lora_rank")
    if rank is None:
        return shapes | {f"{prefix}.q_proj.weight": (queries, size)}
    return shapes | {
        f"{prefix}.q_a_proj.weight": (rank, size),
        f"{prefix}.q_a_layernorm.weight": (rank,),
        f"{prefix}.q_b_proj.weight": (queries, rank),
    }


def _experts(prefix: str, config: Json, experts: int) -> Shapes:
    (size,) = numbers(config, "hidden_size")
    shapes: Shapes = {f"{prefix}.gate.weight": (experts, size)}
    for index in range(experts):
        shapes |= mlp(f"{prefix}.experts.{index}", config, "moe_intermediate_size")
    return shapes
