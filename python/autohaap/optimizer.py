"""Gradient sums over unequal replicas, global norm, AdamW or SGD on flat slices, ZeRO-1, loss scale.

Slices with the same holders form one flat buffer: one SUM all-reduce, or under ZeRO-1 one reduce-scatter, an update of
the rank's own part and one all-gather.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist

from .executor import Executor
from .groups import Groups
from .parameters import Piece


@dataclass(frozen=True)
class Settings:
    """What the training file says."""

    kind: str = "adam"
    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float | None = 1.0
    warmup: int = 0
    decay_steps: int = 0
    """Steps after which a cosine has brought the rate to a tenth; 0: constant."""

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        if self.decay_steps > self.warmup:
            done = min(1.0, (step - self.warmup) / (self.decay_steps - self.warmup))
            return self.lr * (0.55 + 0.45 * math.cos(math.pi * done))
        return self.lr


class Bucket:
    """Slices with the same holders and the same weight decay."""

    def __init__(self, ranks: tuple[int, ...], decays: bool, pieces: list[Piece], executor: Executor, zero: bool) -> None:
        self.ranks, self.decays, self.pieces = ranks, decays, pieces
        self.executor = executor
        self.sizes = [_numel(p) for p in pieces]
        self.total = sum(self.sizes)
        n = len(ranks) if zero else 1
        self.part = -(-self.total // n)
        self.padded = self.part * n
        self.index = ranks.index(executor.rank)
        self.mine = self.index if zero else 0
        self.zero = zero and len(ranks) > 1
        flat = self._gather(executor.parameters)
        self.master = torch.nn.Parameter(self._own(flat).clone())

    def _view(self, of: dict[str, torch.Tensor], piece: Piece) -> torch.Tensor:
        held = self.executor.layout.held[piece.spec.name][self.executor.rank]
        return of[piece.spec.name].narrow(piece.spec.dim, piece.start - held.start, piece.end - piece.start)

    def _gather(self, of: dict[str, torch.Tensor], weighted: bool = False) -> torch.Tensor:
        """All slices in one flat, padded buffer."""
        flat = torch.zeros(self.padded, dtype=self.executor.main_dtype, device=self.executor.device)
        at = 0
        for piece, size in zip(self.pieces, self.sizes, strict=True):
            view = self._view(of, piece).detach().reshape(-1)
            flat[at : at + size].copy_(view)
            if weighted:
                flat[at : at + size].mul_(self.executor.layout.held[piece.spec.name][self.executor.rank].weight)
            at += size
        return flat

    def _own(self, flat: torch.Tensor) -> torch.Tensor:
        return flat[self.mine * self.part : (self.mine + 1) * self.part]

    def reduce(self, groups: Groups) -> None:
        """The sum of all holders' gradients."""
        flat = self._gather(self.executor.main, weighted=True)
        if len(self.ranks) > 1:
            group = groups.group(self.ranks)
            if self.zero:
                own = torch.empty(self.part, dtype=flat.dtype, device=flat.device)
                dist.reduce_scatter_tensor(own, flat, dist.ReduceOp.SUM, group=group)
                self.master.grad = own
                return
            dist.all_reduce(flat, dist.ReduceOp.SUM, group=group)
        self.master.grad = self._own(flat)

    def square_sum(self) -> torch.Tensor:
        """Of the reduced gradient, each element once over all ranks."""
        assert self.master.grad is not None
        if not self.zero and self.index > 0:
            return torch.zeros((), dtype=torch.float64, device=self.executor.device)
        return self.master.grad.double().square().sum()

    def whole(self, own: torch.Tensor, groups: Groups) -> torch.Tensor:
        """The flat buffer of which `own` is this rank's part."""
        if not self.zero:
            return own
        flat = torch.empty(self.padded, dtype=own.dtype, device=own.device)
        dist.all_gather_into_tensor(flat, own.contiguous(), group=groups.group(self.ranks))
        return flat

    def slices(self, flat: torch.Tensor) -> list[tuple[Piece, torch.Tensor]]:
        """The flat buffer as slices in their own shapes."""
        found, at = [], 0
        for piece, size in zip(self.pieces, self.sizes, strict=True):
            found.append((piece, flat[at : at + size].view(piece_shape(piece))))
            at += size
        return found

    def publish(self, groups: Groups) -> None:
        """Updated slices go back into the parameters."""
        with torch.no_grad():
            for piece, value in self.slices(self.whole(self.master.detach(), groups)):
                self._view(self.executor.parameters, piece).copy_(value)


def piece_shape(piece: Piece) -> tuple[int, ...]:
    """Shape of a slice."""
    shape = list(piece.spec.shape)
    shape[piece.spec.dim] = piece.end - piece.start
    return tuple(shape)


def _numel(piece: Piece) -> int:
    return math.prod(piece_shape(piece))


class Optimizer:
    """Updates a rank's slices; all ranks call every method."""

    def __init__(self, executor: Executor, groups: Groups, settings: Settings, zero: int) -> None:
        self.executor, self.groups, self.settings = executor, groups, settings
        self.scale = 2.0**16 if executor.dtype == torch.float16 else 1.0
        self.good_steps = 0
        self.steps = 0
        self.buckets: list[Bucket] = []
        self.inner: torch.optim.Optimizer | None = None
        if executor.active:
            self._make(zero)

    def _make(self, zero: int) -> None:
        by_key: dict[tuple[tuple[int, ...], bool], list[Piece]] = {}
        for piece in self.executor.layout.pieces:
            if self.executor.rank in piece.ranks:
                by_key.setdefault((piece.ranks, piece.spec.decays), []).append(piece)
        for (ranks, decays), pieces in sorted(by_key.items(), key=lambda item: item[0]):
            self.buckets.append(Bucket(ranks, decays, pieces, self.executor, zero >= 1))
        s = self.settings
        sets = [
            {"params": [b.master for b in self.buckets if b.decays is decays], "weight_decay": s.weight_decay * decays}
            for decays in (True, False)
        ]
        sets = [g for g in sets if g["params"]]
        if s.kind == "sgd":
            self.inner = torch.optim.SGD(sets, lr=s.lr)
        else:
            self.inner = torch.optim.AdamW(sets, lr=s.lr, betas=s.betas, eps=s.eps, foreach=False)

    def reduce(self) -> tuple[float, bool]:
        """Sums gradients over their holders; the global norm, and whether all of them are finite."""
        total = torch.zeros(2, dtype=torch.float64, device=self.executor.device)
        for bucket in self.buckets:
            bucket.reduce(self.groups)
            assert bucket.master.grad is not None
            bucket.master.grad.div_(self.scale)
            square = bucket.square_sum()
            if torch.isfinite(bucket.master.grad).all():
                total[0] += square
            else:
                total[1] += 1
        dist.all_reduce(total)
        return math.sqrt(float(total[0])), float(total[1]) == 0

    def step(self, norm: float, finite: bool) -> None:
        """Clips by the global norm and updates; a step with infinite gradients only lowers the loss scale."""
        if not finite:
            if self.executor.dtype == torch.float16:
                self.scale /= 2
                self.good_steps = 0
            return
        clip = self.settings.clip
        factor = clip / (norm + 1e-6) if clip is not None and norm > clip else 1.0
        rate = self.settings.rate(self.steps)
        self.steps += 1
        self.good_steps += 1
        if self.executor.dtype == torch.float16 and self.good_steps % 2000 == 0:
            self.scale *= 2
        if self.inner is None:
            return
        for bucket in self.buckets:
            assert bucket.master.grad is not None
            if factor != 1.0:
                bucket.master.grad.mul_(factor)
        for group in self.inner.param_groups:
            group["lr"] = rate
        self.inner.step()
        for bucket in self.buckets:
            bucket.publish(self.groups)

    def gradients(self) -> list[tuple[Piece, torch.Tensor]]:
        """Reduced gradients of this rank's slices that it answers for (first holder)."""
        found = []
        for bucket in self.buckets:
            assert bucket.master.grad is not None
            flat = bucket.whole(bucket.master.grad, self.groups)
            if bucket.index == 0:
                found.extend(bucket.slices(flat))
        return found
