"""Forward passes of atoms on a rank's parts of the parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from .architecture import Architecture
from .dropout import Dropout
from .parallel import TensorParallel, exchange

Parameters = dict[str, torch.Tensor]


@dataclass
class ExpertGroup:
    """The ranks over which the experts of a stage are divided."""

    group: dist.ProcessGroup | None
    size: int
    rank: int


class Atoms:
    """Computes the atoms of a rank."""

    def __init__(
        self,
        arch: Architecture,
        parameters: Parameters,
        parallel: TensorParallel,
        experts: ExpertGroup,
        num_atoms: int,
        seq_len: int,
        vocab: int,
        dropout: Dropout,
    ) -> None:
        self.arch = arch
        self.parameters = parameters
        self.tp = parallel
        self.experts = experts
        self.num_atoms = num_atoms
        self.seq_len = seq_len
        self.vocab = vocab
        self.dropout = dropout
        some = next(iter(parameters.values()))
        self.device, self.dtype = some.device, some.dtype
        self.rotary = None if arch.positions else _rotary(arch, seq_len, self.device, self.dtype)
        self.mask = _window(arch, seq_len, self.device)

    def forward(self, atom: int, x: torch.Tensor, rows: range, recompute: str) -> torch.Tensor:
        """Embedding (of tokens) or block; `rows` are the sequences of the global batch, for dropout."""
        if atom == 0:
            return self._embedding(x, rows)

        def block(x: torch.Tensor) -> torch.Tensor:
            return self._block(atom - 1, x, rows, recompute == "selective")

        return _again(block, x) if recompute == "full" else block(x)

    def loss(self, x: torch.Tensor, labels: torch.Tensor, recompute: str) -> torch.Tensor:
        """Sum of the token losses of the rows; labels below 0 do not count."""

        def head(x: torch.Tensor) -> torch.Tensor:
            return self._loss(x, labels)

        return _again(head, x) if recompute == "full" else head(x)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.parameters[f"{name}.weight"], self.parameters.get(f"{name}.bias"))

    def _row(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """A linear divided along its input; the bias is added once, to the sum."""
        y = self.tp.leave(F.linear(x, self.parameters[f"{name}.weight"]))
        bias = self.parameters.get(f"{name}.bias")
        return y if bias is None else y + bias

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        weight = self.parameters[f"{name}.weight"]
        if self.arch.gated:
            return F.rms_norm(x, weight.shape, weight, self.arch.eps)
        return F.layer_norm(x, weight.shape, weight, self.parameters[f"{name}.bias"], self.arch.eps)

    def _activation(self, x: torch.Tensor) -> torch.Tensor:
        kind = self.arch.activation
        if kind in ("silu", "swish"):
            return F.silu(x)
        return F.gelu(x, approximate="none" if kind == "gelu" else "tanh")

    def _embedding(self, tokens: torch.Tensor, rows: range) -> torch.Tensor:
        weight = self.parameters["embed.weight"]
        first = self.tp.rank * (self.vocab // self.tp.size)
        local = tokens - first
        outside = (local < 0) | (local >= weight.shape[0])
        x = F.embedding(local.masked_fill(outside, 0), weight).masked_fill(outside.unsqueeze(-1), 0.0)
        x = self.tp.leave(x)
        if self.arch.positions:
            x = x + self.parameters["positions.weight"][: self.seq_len][self.tp.own_tokens(self.seq_len)]
        return self.dropout.apply(x, self.arch.embedding_dropout, "embed", rows, self.tp)

    def _block(self, layer: int, x: torch.Tensor, rows: range, selective: bool) -> torch.Tensor:
        base = f"layers.{layer}"
        y = self._attention(base, self._norm(f"{base}.norm1", x), selective)
        x = x + self.dropout.apply(y, self.arch.residual_dropout, f"{base}.attn", rows, self.tp)
        y = self._norm(f"{base}.norm2", x)
        y = self._moe(f"{base}.moe", y) if layer in self.arch.moe_layers else self._mlp(f"{base}.mlp", y)
        return x + self.dropout.apply(y, self.arch.residual_dropout, f"{base}.mlp", rows, self.tp)

    def _attention(self, base: str, x: torch.Tensor, selective: bool) -> torch.Tensor:
        x = self.tp.enter(x)
        d = self.arch.head_dim
        q, k, v = (
            self._linear(f"{base}.attn.{name}", x).unflatten(-1, (-1, d)).transpose(1, 2) for name in "qkv"
        )
        if self.arch.qk_norm:
            q, k = self._norm(f"{base}.attn.q_norm", q), self._norm(f"{base}.attn.k_norm", k)
        if self.rotary is not None:
            q, k = _rotate(q, *self.rotary), _rotate(k, *self.rotary)

        def core(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            mask = self.mask
            return F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)

        y = checkpoint(core, q, k, v, use_reentrant=False) if selective else core(q, k, v)
        return self._row(f"{base}.attn.o", y.transpose(1, 2).flatten(2))

    def _mlp(self, name: str, x: torch.Tensor) -> torch.Tensor:
        x = self.tp.enter(x)
        if self.arch.gated:
            y = self._activation(self._linear(f"{name}.gate", x)) * self._linear(f"{name}.up", x)
        else:
            y = self._activation(self._linear(f"{name}.up", x))
        return self._row(f"{name}.down", y)

    def _moe(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Each token is routed once, by the rank that holds its part of the sequence."""
        own = self.tp.split(x)
        tokens = own.flatten(0, 1)
        scores = self._linear(f"{name}.router", tokens).float() if tokens.dtype != torch.float64 else (
            self._linear(f"{name}.router", tokens)
        )
        weights, chosen = scores.softmax(-1).topk(self.arch.active, dim=-1)
        if self.arch.normalise_top:
            weights = weights / weights.sum(-1, keepdim=True)
        # Copies of tokens in the order of their experts; the expert group holds them in consecutive blocks.
        order = chosen.flatten().argsort(stable=True)
        copies = tokens[order // self.arch.active]
        counts = torch.bincount(chosen.flatten(), minlength=self.arch.experts)
        y = self._experts(name, copies, counts)
        scaled = y * weights.flatten()[order].unsqueeze(-1).to(y.dtype)
        out = torch.zeros_like(tokens).index_add(0, order // self.arch.active, scaled)
        out = self.tp.unsplit(out.view_as(own))
        if self.arch.shared_width:
            gate = torch.sigmoid(F.linear(x, self.parameters[f"{name}.shared_gate.weight"]))
            out = out + gate * self._mlp(f"{name}.shared", x)
        return out

    def _experts(self, name: str, copies: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Experts on copies sorted by expert."""
        group = self.experts
        per_rank = self.arch.experts // group.size
        first = group.rank * per_rank
        if group.group is None:
            return self._local_experts(name, copies, counts.view(1, -1), first)
        received = torch.empty(group.size, per_rank, dtype=counts.dtype, device=counts.device)
        dist.all_to_all_single(received, counts.view(group.size, per_rank).contiguous(), group=group.group)
        sent_to = counts.view(group.size, per_rank).sum(1).tolist()
        got_from = received.sum(1).tolist()
        x = exchange(copies, got_from, sent_to, group.group)
        y = self._local_experts(name, x, received, first)
        return exchange(y, sent_to, got_from, group.group)

    def _local_experts(self, name: str, x: torch.Tensor, counts: torch.Tensor, first: int) -> torch.Tensor:
        """`x` holds, sender by sender, the copies for this rank's experts; `counts` is senders x experts."""
        sizes = counts.flatten().tolist()
        blocks = x.split(sizes)
        senders, experts = counts.shape
        outs: list[torch.Tensor] = [x] * len(blocks)
        for e in range(experts):
            mine = [blocks[s * experts + e] for s in range(senders)]
            y = torch.cat(mine)
            base = f"{name}.experts.{first + e}"
            y = self._activation(self._linear(f"{base}.gate", y)) * self._linear(f"{base}.up", y)
            y = self._linear(f"{base}.down", y)
            for s, block in enumerate(y.split([len(b) for b in mine])):
                outs[s * experts + e] = block
        return torch.cat(outs)

    def _loss(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.tp.enter(self._norm("norm", x))
        weight = self.parameters["embed.weight" if self.arch.tied else "head.weight"]
        logits = F.linear(x, weight)
        if logits.dtype != torch.float64:
            logits = logits.float()
        first = self.tp.rank * (self.vocab // self.tp.size)
        real = self.arch.vocab - first
        if real < logits.shape[-1]:
            outside = torch.arange(logits.shape[-1], device=logits.device) >= real
            logits = logits.masked_fill(outside, torch.finfo(logits.dtype).min)
        largest = self.tp.maximum(logits.amax(-1))
        total = self.tp.total((logits - largest.unsqueeze(-1)).exp().sum(-1))
        local = labels - first
        outside = (local < 0) | (local >= weight.shape[0])
        wanted = logits.gather(-1, local.masked_fill(outside, 0).unsqueeze(-1)).squeeze(-1)
        wanted = self.tp.total(wanted.masked_fill(outside, 0.0))
        losses = total.log() + largest - wanted
        return losses.masked_fill(labels < 0, 0.0).sum()


def _again(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    # Without early stop every rank of a group repeats the same collectives.
    with set_checkpoint_early_stop(False):
        result: torch.Tensor = checkpoint(function, x, use_reentrant=False)
    return result


def _rotary(
    arch: Architecture, seq_len: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines in fp32 or better, as the families' checkpoints expect them."""
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    d = arch.head_dim
    frequency = 1.0 / arch.rope["rope_theta"] ** (torch.arange(0, d, 2, dtype=torch.float32) / d)
    kind = arch.rope["rope_type"]
    if kind == "linear":
        frequency = frequency / arch.rope["factor"]
    elif kind == "llama3":
        low, high = arch.rope["low_freq_factor"], arch.rope["high_freq_factor"]
        old = arch.rope["original_max_position_embeddings"]
        wave = 2 * math.pi / frequency
        smooth = ((old / wave - low) / (high - low)).clamp(0.0, 1.0)
        frequency = (1 - smooth) * frequency / arch.rope["factor"] + smooth * frequency
    angles = torch.outer(torch.arange(seq_len, dtype=torch.float32), frequency)
    angles = torch.cat([angles, angles], -1)
    return angles.cos().to(device, exact), angles.sin().to(device, exact)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    turned = torch.cat([-right, left], -1)
    return (x * cos + turned * sin).to(x.dtype)


def _window(arch: Architecture, seq_len: int, device: torch.device) -> torch.Tensor | None:
    if arch.window is None or arch.window >= seq_len:
        return None
    at = torch.arange(seq_len, device=device)
    back = at.unsqueeze(1) - at.unsqueeze(0)
    return (back >= 0) & (back < arch.window)
