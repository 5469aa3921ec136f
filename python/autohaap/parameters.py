"""Logical parameters by global names, and which rank holds which part of each.

A parameter is divided along at most one dimension, in whole units (heads, columns, vocabulary rows). Where replicas
divide it differently, the cuts of all of them make slices; the gradient of a slice is the sum over everyone who holds
it (engines of equal replicas are the special case of one slice per rank).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch

from .architecture import Architecture
from .plan import Plan, Stage


@dataclass(frozen=True)
class Spec:
    """A logical parameter."""

    name: str
    shape: tuple[int, ...]
    """Padded: the vocabulary to a multiple of all degrees."""
    kind: str
    """`split` over tensor parallelism, `whole` on every rank, `local` (whole, but each rank sees other tokens),
    or `expert` (whole on one position of an expert group)."""
    dim: int = 0
    units: int = 1
    expert: int = 0
    fill: float | None = None
    """Initial value; None: normal with the architecture's range."""
    real: int | None = None
    """Rows of the first dimension that are no padding."""

    @property
    def decays(self) -> bool:
        """Whether weight decay applies: matrices only."""
        return len(self.shape) > 1

    @property
    def saved_shape(self) -> tuple[int, ...]:
        """The shape without padding."""
        return self.shape if self.real is None else (self.real, *self.shape[1:])


@dataclass(frozen=True)
class Held:
    """A rank's part of a parameter: [start, end) of its dimension, in elements."""

    rank: int
    start: int
    end: int
    weight: float
    """What its gradient counts in the sum: 1, or 1 / tp where the ranks of a group compute the same gradient."""


@dataclass(frozen=True)
class Piece:
    """A slice of a parameter and its holders."""

    spec: Spec
    start: int
    end: int
    ranks: tuple[int, ...]


def padded_vocab(plan: Plan, arch: Architecture) -> int:
    """The vocabulary, a multiple of every degree that divides it."""
    ends = (0, plan.num_atoms - 1)
    degrees = [r.tp for s in plan.stages if s.first in ends or s.last == plan.num_atoms for r in s.replicas]
    multiple = math.lcm(*degrees)
    return -(-arch.vocab // multiple) * multiple


def specs_of_atom(arch: Architecture, atom: int, num_atoms: int, vocab: int) -> list[Spec]:
    """The parameters of an atom; a tied head holds the embedding's."""
    h = arch.hidden
    norm_bias = not arch.gated
    found: list[Spec] = []

    def norm(name: str, width: int = h, kind: str = "whole") -> None:
        found.append(Spec(f"{name}.weight", (width,), kind, fill=1.0))
        if norm_bias:
            found.append(Spec(f"{name}.bias", (width,), kind, fill=0.0))

    def embedding(name: str) -> Spec:
        return Spec(name, (vocab, h), "split", 0, vocab, real=arch.vocab)

    def column(name: str, out: int, units: int, bias: bool, inner: int = h) -> None:
        found.append(Spec(f"{name}.weight", (out, inner), "split", 0, units))
        if bias:
            found.append(Spec(f"{name}.bias", (out,), "split", 0, units, fill=0.0))

    def row(name: str, inner: int, units: int, bias: bool) -> None:
        found.append(Spec(f"{name}.weight", (h, inner), "split", 1, units))
        if bias:
            found.append(Spec(f"{name}.bias", (h,), "whole", fill=0.0))

    def mlp(name: str, width: int, bias: bool) -> None:
        if arch.gated:
            column(f"{name}.gate", width, width, bias)
        column(f"{name}.up", width, width, bias)
        row(f"{name}.down", width, width, bias)

    if atom == 0:
        found.append(embedding("embed.weight"))
        if arch.positions:
            found.append(Spec("positions.weight", (arch.positions, h), "whole"))
        return found
    if atom == num_atoms - 1:
        norm("norm")
        found.append(embedding("embed.weight" if arch.tied else "head.weight"))
        return found
    layer = atom - 1
    base = f"layers.{layer}"
    d = arch.head_dim
    norm(f"{base}.norm1")
    column(f"{base}.attn.q", arch.heads * d, arch.heads, arch.qkv_bias)
    column(f"{base}.attn.k", arch.kv_heads * d, arch.kv_heads, arch.qkv_bias)
    column(f"{base}.attn.v", arch.kv_heads * d, arch.kv_heads, arch.qkv_bias)
    row(f"{base}.attn.o", arch.heads * d, arch.heads, arch.out_bias)
    if arch.qk_norm:
        # Inside the region: every rank norms its own heads.
        norm(f"{base}.attn.q_norm", d, "local")
        norm(f"{base}.attn.k_norm", d, "local")
    norm(f"{base}.norm2")
    if layer not in arch.moe_layers:
        mlp(f"{base}.mlp", arch.width, arch.mlp_bias)
        return found
    found.append(Spec(f"{base}.moe.router.weight", (arch.experts, h), "local"))
    for e in range(arch.experts):
        name, f = f"{base}.moe.experts.{e}", arch.expert_width
        found.append(Spec(f"{name}.gate.weight", (f, h), "expert", expert=e))
        found.append(Spec(f"{name}.up.weight", (f, h), "expert", expert=e))
        found.append(Spec(f"{name}.down.weight", (h, f), "expert", expert=e))
    if arch.shared_width:
        mlp(f"{base}.moe.shared", arch.shared_width, False)
        found.append(Spec(f"{base}.moe.shared_gate.weight", (1, h), "whole"))
    return found


def interval(units: int, tp: int, rank: int) -> tuple[int, int]:
    """The units of a tensor-parallel rank; with more ranks than units, several hold the same one."""
    start = rank * units // tp
    return start, max(start + 1, (rank + 1) * units // tp)


def _holders(plan: Plan, arch: Architecture, stage: Stage, spec: Spec) -> list[Held]:
    if spec.kind == "expert":
        per_rank = arch.experts // stage.ep
        owner = spec.expert // per_rank
        size = spec.shape[0]
        return [Held(rank, 0, size, 1.0) for i, rank in enumerate(stage.ranks) if i % stage.ep == owner]
    found = []
    size = spec.shape[spec.dim]
    for replica in stage.replicas:
        same = spec.kind == "whole" and not (plan.sequence_parallel and replica.tp > 1)
        weight = 1.0 / replica.tp if same else 1.0
        for t, rank in enumerate(replica.ranks):
            if spec.kind == "split":
                unit = size // spec.units
                start, end = interval(spec.units, replica.tp, t)
                found.append(Held(rank, start * unit, end * unit, 1.0))
            else:
                found.append(Held(rank, 0, size, weight))
    return found


class Layout:
    """Every parameter of a plan with its holders and slices, the same on every rank."""

    def __init__(self, plan: Plan, arch: Architecture) -> None:
        self.vocab = padded_vocab(plan, arch)
        self.specs: dict[str, Spec] = {}
        self.held: dict[str, dict[int, Held]] = {}
        for stage in plan.stages:
            for atom in stage.atoms:
                for spec in specs_of_atom(arch, atom, plan.num_atoms, self.vocab):
                    self.specs[spec.name] = spec
                    holders = self.held.setdefault(spec.name, {})
                    for held in _holders(plan, arch, stage, spec):
                        holders[held.rank] = held
        self.pieces: list[Piece] = []
        for name in sorted(self.specs):
            holders = self.held[name]
            cuts = sorted({edge for held in holders.values() for edge in (held.start, held.end)})
            for start, end in zip(cuts, cuts[1:], strict=False):
                ranks = tuple(sorted(r for r, held in holders.items() if held.start <= start and end <= held.end))
                self.pieces.append(Piece(self.specs[name], start, end, ranks))

    def of_rank(self, rank: int) -> list[tuple[Spec, Held]]:
        """What a rank holds."""
        return [(self.specs[n], self.held[n][rank]) for n in sorted(self.specs) if rank in self.held[n]]

    def groups(self) -> set[tuple[int, ...]]:
        """The groups that reduce gradients."""
        return {piece.ranks for piece in self.pieces}


def part(full: torch.Tensor, spec: Spec, start: int, end: int) -> torch.Tensor:
    """[start, end) of the parameter's dimension."""
    return full.narrow(spec.dim, start, end - start)


def initial(spec: Spec, arch: Architecture, seed: int) -> torch.Tensor:
    """The initial value of the whole parameter in fp32: depends on the seed and the name alone."""
    if spec.fill is not None:
        return torch.full(spec.shape, spec.fill)
    digest = hashlib.sha256(f"{seed} {spec.name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    full = torch.randn(spec.saved_shape, generator=generator) * arch.initializer
    if spec.real is not None and spec.real < spec.shape[0]:
        full = torch.cat([full, torch.zeros(spec.shape[0] - spec.real, *spec.shape[1:])])
    return full
