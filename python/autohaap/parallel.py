"""Entering and leaving a tensor-parallel region with DTensor's own differentiable redistribution."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

SEQUENCE = 1
"""The dimension that sequence parallelism divides: activations are rows x sequence x hidden."""


class TensorParallel:
    """The tensor-parallel group of a replica. Outside its regions activations are complete on every rank, or divided
    along the sequence under sequence parallelism."""

    def __init__(self, mesh: DeviceMesh | None, rank: int, size: int, sequence_parallel: bool) -> None:
        self.mesh = mesh
        self.rank = rank
        self.size = size
        self.sequence_parallel = sequence_parallel and size > 1

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """The complete activations; gradients of the ranks add up on the way back."""
        if self.mesh is None:
            return x
        held = Shard(SEQUENCE) if self.sequence_parallel else Replicate()
        whole = DTensor.from_local(x, self.mesh, [held], run_check=False).redistribute(placements=[Replicate()])
        return whole.to_local(grad_placements=[Partial()])

    def leave(self, y: torch.Tensor) -> torch.Tensor:
        """The sum of the ranks' parts, divided along the sequence again under sequence parallelism."""
        return self._sum(y, Shard(SEQUENCE) if self.sequence_parallel else Replicate())

    def total(self, y: torch.Tensor) -> torch.Tensor:
        """The sum of the ranks' parts, complete on every rank."""
        return self._sum(y, Replicate())

    def _sum(self, y: torch.Tensor, placement: Shard | Replicate) -> torch.Tensor:
        if self.mesh is None:
            return y
        part = DTensor.from_local(y, self.mesh, [Partial()], run_check=False)
        return part.redistribute(placements=[placement]).to_local()

    def maximum(self, y: torch.Tensor) -> torch.Tensor:
        """The largest of the ranks' values; no gradient."""
        y = y.detach().clone()
        if self.mesh is not None:
            dist.all_reduce(y, dist.ReduceOp.MAX, group=self.mesh.get_group())
        return y

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's part of the sequence, for work that each token needs once."""
        if self.mesh is None or self.sequence_parallel:
            return x
        whole = DTensor.from_local(x, self.mesh, [Replicate()], run_check=False)
        return whole.redistribute(placements=[Shard(SEQUENCE)]).to_local()

    def unsplit(self, x: torch.Tensor) -> torch.Tensor:
        """Back from [`split`][]."""
        if self.mesh is None or self.sequence_parallel:
            return x
        part = DTensor.from_local(x, self.mesh, [Shard(SEQUENCE)], run_check=False)
        return part.redistribute(placements=[Replicate()]).to_local()

    def own_tokens(self, seq_len: int) -> slice:
        """The tokens of a sequence that this rank's activations hold outside regions."""
        if not self.sequence_parallel:
            return slice(0, seq_len)
        part = seq_len // self.size
        return slice(self.rank * part, (self.rank + 1) * part)


def exchange(
    x: torch.Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup
) -> torch.Tensor:
    """Differentiable all-to-all of rows in unequal parts."""
    out: torch.Tensor = all_to_all_single_autograd(x, received, sent, group)
    return out.wait() if hasattr(out, "wait") else out  # type: ignore[no-any-return]
