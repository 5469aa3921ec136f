"""Numbers of `config.json` that a plan does not carry, checked against the plan's atoms."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import errors
from .errors import RuntimeProblem

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe", "gpt2")


@dataclass(frozen=True)
class Architecture:
    """A decoder of one of the executed families."""

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    vocab: int
    tied: bool
    eps: float
    activation: str
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    window: int | None
    positions: int
    rope: dict[str, Any]
    experts: int
    active: int
    expert_width: int
    shared_width: int
    normalise_top: bool
    moe_layers: frozenset[int]
    embedding_dropout: float
    residual_dropout: float
    initializer: float

    @property
    def gated(self) -> bool:
        """Gated MLP and RMSNorm (everything but GPT-2)."""
        return self.family != "gpt2"


def refuse(path: str, message: str) -> RuntimeProblem:
    """A model that the runtime does not build."""
    return RuntimeProblem(errors.NOT_EXECUTED, path, message, f"executed families: {', '.join(FAMILIES)}")


def read(path: Path) -> Architecture:
    """Reads a Hugging Face `config.json`."""
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RuntimeProblem(errors.WEIGHTS, str(path), f"cannot read the model's config: {error}") from error
    return of_config(config, str(path))


def of_config(c: dict[str, Any], path: str) -> Architecture:
    """The architecture of a parsed `config.json`."""
    family = c.get("model_type", "")
    if family not in FAMILIES:
        raise refuse(f"{path}.model_type", f"the runtime does not build `{family}`")
    if family == "gpt2":
        return _gpt2(c, path)
    heads, hidden = c["num_attention_heads"], c["hidden_size"]
    layers = c["num_hidden_layers"]
    rope = dict(c.get("rope_parameters") or c.get("rope_scaling") or {})
    rope.setdefault("rope_theta", c.get("rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3", "linear"):
        raise refuse(f"{path}.rope_scaling", f"rope type `{kind}` is not executed")
    rope["rope_type"] = kind
    experts = c.get("num_local_experts", c.get("num_experts", 0)) or 0
    moe_layers: frozenset[int] = frozenset()
    if experts:
        step, dense = c.get("decoder_sparse_step", 1), c.get("mlp_only_layers") or []
        moe_layers = frozenset(i for i in range(layers) if i not in dense and (i + 1) % step == 0)
    window = c.get("sliding_window")
    if family in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
        if c.get("use_sliding_window", False):
            raise refuse(f"{path}.use_sliding_window", "windows on some layers only are not executed")
        window = None
    if family == "llama":
        window = None
    if c.get("partial_rotary_factor", 1.0) != 1.0:
        raise refuse(f"{path}.partial_rotary_factor", "partial rotary embeddings are not executed")
    if c.get("attention_dropout", 0.0):
        raise refuse(f"{path}.attention_dropout", "dropout of attention weights is not executed")
    bias = c.get("attention_bias", False)
    mixtral = family == "mixtral"
    return Architecture(
        family=family,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=c.get("num_key_value_heads") or heads,
        head_dim=c.get("head_dim") or hidden // heads,
        width=c["intermediate_size"],
        vocab=c["vocab_size"],
        tied=c.get("tie_word_embeddings", False),
        eps=c.get("rms_norm_eps", 1e-6),
        activation=c.get("hidden_act", "silu"),
        qkv_bias=bias or (family in ("qwen2", "qwen2_moe") and c.get("qkv_bias", True)),
        out_bias=bias,
        mlp_bias=c.get("mlp_bias", False),
        qk_norm=family in ("qwen3", "qwen3_moe"),
        window=window,
        positions=0,
        rope=rope,
        experts=experts,
        active=c.get("num_experts_per_tok", 2) if experts else 0,
        expert_width=c["intermediate_size"] if mixtral else c.get("moe_intermediate_size", 0),
        shared_width=(c.get("shared_expert_intermediate_size") or 0) if family == "qwen2_moe" else 0,
        normalise_top=mixtral or c.get("norm_topk_prob", False),
        moe_layers=moe_layers,
        embedding_dropout=0.0,
        residual_dropout=0.0,
        initializer=c.get("initializer_range", 0.02),
    )


def _gpt2(c: dict[str, Any], path: str) -> Architecture:
    if c.get("attn_pdrop", 0.0):
        raise refuse(f"{path}.attn_pdrop", "dropout of attention weights is not executed; set it to 0")
    if c.get("scale_attn_by_inverse_layer_idx") or not c.get("scale_attn_weights", True):
        raise refuse(path, "other scales of attention are not executed")
    hidden, heads = c["n_embd"], c["n_head"]
    return Architecture(
        family="gpt2",
        hidden=hidden,
        layers=c["n_layer"],
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        width=c.get("n_inner") or 4 * hidden,
        vocab=c["vocab_size"],
        tied=c.get("tie_word_embeddings", True),
        eps=c.get("layer_norm_epsilon", 1e-5),
        activation=c.get("activation_function", "gelu_new"),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        qk_norm=False,
        window=None,
        positions=c["n_positions"],
        rope={},
        experts=0,
        active=0,
        expert_width=0,
        shared_width=0,
        normalise_top=False,
        moe_layers=frozenset(),
        embedding_dropout=c.get("embd_pdrop", 0.0),
        residual_dropout=c.get("resid_pdrop", 0.0),
        initializer=c.get("initializer_range", 0.02),
    )


def agree(arch: Architecture, model: dict[str, Any]) -> None:
    """Fails where the plan was made for another model."""
    atoms = model["atoms"]
    found: dict[str, Any] = {
        "layers": sum(atom["shape"]["type"] == "block" for atom in atoms),
        "hidden": model["hidden"],
        "vocab": model["vocab"],
        "tied": model["tied"],
    }
    wanted: dict[str, Any] = {
        "layers": arch.layers, "hidden": arch.hidden, "vocab": arch.vocab, "tied": arch.tied
    }
    for layer, atom in enumerate(a for a in atoms if a["shape"]["type"] == "block"):
        mixer, moe = atom["shape"]["mixer"], atom["shape"]["moe"]
        key = f"layer {layer} "
        if not mixer or mixer["type"] != "attention":
            raise refuse(f"model.atoms[{layer + 1}]", "only attention blocks are executed")
        found[key + "heads"], wanted[key + "heads"] = (mixer["heads"], mixer["kv_heads"]), (arch.heads, arch.kv_heads)
        found[key + "experts"] = (moe["experts"], moe["width"]) if moe else None
        sparse = layer in arch.moe_layers
        wanted[key + "experts"] = (arch.experts, arch.expert_width) if sparse else None
        if atom["shape"]["mlp"]:
            found[key + "mlp"], wanted[key + "mlp"] = atom["shape"]["mlp"]["width"], arch.width
    for key, value in wanted.items():
        if found[key] != value:
            raise RuntimeProblem(
                errors.WEIGHTS,
                "model",
                f"{key}: the plan has `{found[key]}`, the model's config `{value}`",
                "plan again from this config.json",
            )
