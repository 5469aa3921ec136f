"""Hugging Face's names and layouts of tensors, from and to the global names of parameters."""

from __future__ import annotations

import re

import torch

from .architecture import Architecture

_DENSE = {
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.o": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
    "moe.router": "mlp.gate",
    "moe.shared_gate": "mlp.shared_expert_gate",
}
_GPT2 = {
    "norm1": "ln_1",
    "norm2": "ln_2",
    "attn.o": "attn.c_proj",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
_ENDS = {"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "head.weight": "lm_head.weight"}
_GPT2_ENDS = {
    "embed.weight": "transformer.wte.weight",
    "positions.weight": "transformer.wpe.weight",
    "norm.weight": "transformer.ln_f.weight",
    "norm.bias": "transformer.ln_f.bias",
    "head.weight": "lm_head.weight",
}
_EXPERT = re.compile(r"moe\.experts\.(\d+)\.(gate|up|down)")


def of_parameter(arch: Architecture, name: str) -> str:
    """The tensor of a Hugging Face checkpoint that holds a parameter (GPT-2: q, k and v share one)."""
    gpt2 = arch.family == "gpt2"
    ends = _GPT2_ENDS if gpt2 else _ENDS
    if name in ends:
        return ends[name]
    _, layer, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    if gpt2:
        if part in ("attn.q", "attn.k", "attn.v"):
            return f"transformer.h.{layer}.attn.c_attn.{kind}"
        return f"transformer.h.{layer}.{_GPT2[part]}.{kind}"
    expert = _EXPERT.fullmatch(part)
    if expert and arch.family == "mixtral":
        column = {"gate": "w1", "up": "w3", "down": "w2"}[expert[2]]
        return f"model.layers.{layer}.block_sparse_moe.experts.{expert[1]}.{column}.{kind}"
    if expert:
        return f"model.layers.{layer}.mlp.experts.{expert[1]}.{expert[2]}_proj.{kind}"
    if part == "moe.router" and arch.family == "mixtral":
        return f"model.layers.{layer}.block_sparse_moe.gate.{kind}"
    if part.startswith("moe.shared."):
        return f"model.layers.{layer}.mlp.shared_expert.{part.rpartition('.')[2]}_proj.{kind}"
    return f"model.layers.{layer}.{_DENSE[part]}.{kind}"


def from_hf(arch: Architecture, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The parameter inside the tensor of [`of_parameter`][]."""
    if arch.family != "gpt2" or not name.startswith("layers."):
        return tensor
    part, kind = name.split(".", 2)[2].rsplit(".", 1)
    # GPT-2 stores linears as inputs x outputs.
    if kind == "weight" and tensor.dim() == 2:
        tensor = tensor.t()
    if part in ("attn.q", "attn.k", "attn.v"):
        tensor = tensor.chunk(3, 0)["qkv".index(part[-1])]
    return tensor


def to_hf(arch: Architecture, parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A Hugging Face checkpoint of whole parameters."""
    found: dict[str, torch.Tensor] = {}
    parts: dict[str, list[torch.Tensor]] = {}
    for name in sorted(parameters, key=lambda n: (n.replace(".attn.q.", ".attn.0.").replace(".attn.k.", ".attn.1."))):
        target, value = of_parameter(arch, name), parameters[name]
        if arch.family == "gpt2" and ".c_attn." in target:
            parts.setdefault(target, []).append(value)
            continue
        if arch.family == "gpt2" and name.startswith("layers.") and value.dim() == 2:
            value = value.t()
        found[target] = value.contiguous()
    for target, values in parts.items():
        joined = torch.cat(values, 0)
        found[target] = (joined.t() if joined.dim() == 2 else joined).contiguous()
    return found
