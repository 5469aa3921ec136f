"""Stage boundaries: activations and their gradients are re-divided by rows and slices, point to point.

Every overlap of an upstream and a downstream row interval crosses once: under sequence parallelism in the overlaps of
the two sides' token intervals, otherwise in as many slices of the hidden width as the smaller side has ranks, which the
receiving group then shares among its ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from .groups import Groups
from .plan import Replica, Stage
from .virtual import VirtualClock

HIDDEN = 2
TOKENS = 1


@dataclass(frozen=True)
class Flow:
    """One message: rows of the micro-batch, and [start, end) of a dimension."""

    index: int
    source: int
    target: int
    rows: tuple[int, int]
    dim: int
    start: int
    end: int


@dataclass(frozen=True)
class Overlap:
    """Rows that two replicas share, and the messages that carry them."""

    source: Replica
    target: Replica
    rows: tuple[int, int]
    flows: tuple[Flow, ...]


def overlaps(source: Stage, target: Stage, seq_len: int, hidden: int, sequence_parallel: bool) -> list[Overlap]:
    """All messages of one micro-batch from a stage to a neighbour."""
    found = []
    index = 0
    for a in source.replicas:
        for b in target.replicas:
            rows = (max(a.start, b.start), min(a.end, b.end))
            if rows[0] >= rows[1]:
                continue
            flows = []
            if sequence_parallel:
                for i, s in enumerate(a.ranks):
                    for j, t in enumerate(b.ranks):
                        start = max(i * seq_len // a.tp, j * seq_len // b.tp)
                        end = min((i + 1) * seq_len // a.tp, (j + 1) * seq_len // b.tp)
                        if start < end:
                            flows.append(Flow(index, s, t, rows, TOKENS, start, end))
                            index += 1
            else:
                n = min(a.tp, b.tp)
                for k in range(n):
                    s, t = a.ranks[k * a.tp // n], b.ranks[k * b.tp // n]
                    flows.append(Flow(index, s, t, rows, HIDDEN, k * hidden // n, (k + 1) * hidden // n))
                    index += 1
            found.append(Overlap(a, b, rows, tuple(flows)))
    return found


class Edge:
    """One direction of a boundary, seen from one rank."""

    def __init__(
        self,
        groups: Groups,
        key: int,
        source: Stage,
        target: Stage,
        seq_len: int,
        hidden: int,
        sequence_parallel: bool,
        dtype: torch.dtype,
        device: torch.device,
        clock: VirtualClock | None,
    ) -> None:
        self.groups = groups
        self.key = key
        self.source, self.target = source, target
        self.seq_len, self.hidden = seq_len, hidden
        self.sequence_parallel = sequence_parallel
        self.dtype, self.device = dtype, device
        self.overlaps = overlaps(source, target, seq_len, hidden, sequence_parallel)
        self.num_flows = sum(len(o.flows) for o in self.overlaps)
        self.rank = dist.get_rank()
        self.elements_sent = 0
        self.pending: list[tuple[dist.Work, torch.Tensor]] = []
        self.clock = clock

    def _tag(self, flow: Flow, micro_batch: int) -> int:
        return (self.key * 4096 + micro_batch) * 256 + flow.index

    def pairs(self) -> set[tuple[object, ...]]:
        """Pairs of ranks that talk."""
        return {(self.key, f.source, f.target) for o in self.overlaps for f in o.flows}

    def send(self, x: torch.Tensor, micro_batch: int) -> None:
        """Sends this rank's part of a micro-batch; returns at once."""
        for overlap in self.overlaps:
            if self.rank not in overlap.source.ranks:
                continue
            first = overlap.source.start
            # The tokens at which this rank's activations begin.
            offset = 0
            if self.sequence_parallel:
                offset = overlap.source.ranks.index(self.rank) * self.seq_len // overlap.source.tp
            for flow in overlap.flows:
                if flow.source != self.rank:
                    continue
                part = x[flow.rows[0] - first : flow.rows[1] - first]
                start = flow.start - (offset if flow.dim == TOKENS else 0)
                part = part.narrow(flow.dim, start, flow.end - flow.start).contiguous()
                self.elements_sent += part.numel()
                if self.clock is not None:
                    self.clock.send(self, part, flow.target, self._tag(flow, micro_batch))
                else:
                    self.start(part, flow.target, self._tag(flow, micro_batch))

    def start(self, part: torch.Tensor, target: int, tag: int) -> None:
        """Posts one message."""
        group = self.groups.pair((self.key, self.rank, target))
        work = dist.isend(part, target, group=group, tag=tag if group is None else 0)
        if work is not None:
            self.pending.append((work, part))

    def receive(self, micro_batch: int) -> torch.Tensor:
        """This rank's part of a micro-batch of the target stage."""
        replica = next(r for r in self.target.replicas if self.rank in r.ranks)
        t = replica.ranks.index(self.rank)
        tokens, offset = self.seq_len, 0
        if self.sequence_parallel:
            offset = t * self.seq_len // replica.tp
            tokens = (t + 1) * self.seq_len // replica.tp - offset
        x = torch.empty(replica.rows, tokens, self.hidden, dtype=self.dtype, device=self.device)
        mine = [o for o in self.overlaps if o.target is replica]
        arriving = []
        for overlap in mine:
            for flow in overlap.flows:
                if flow.target == self.rank:
                    shape = [flow.rows[1] - flow.rows[0], tokens, self.hidden]
                    shape[flow.dim] = flow.end - flow.start
                    buffer = torch.empty(shape, dtype=self.dtype, device=self.device)
                    group = self.groups.pair((self.key, flow.source, self.rank))
                    tag = 0 if group is not None else self._tag(flow, micro_batch)
                    arriving.append((flow, buffer, dist.irecv(buffer, flow.source, group=group, tag=tag)))
        for flow, buffer, work in arriving:
            if work is not None:
                work.wait()
            rows = x[flow.rows[0] - replica.start : flow.rows[1] - replica.start]
            start = flow.start - (offset if flow.dim == TOKENS else 0)
            rows.narrow(flow.dim, start, flow.end - flow.start).copy_(buffer)
        if not self.sequence_parallel and replica.tp > 1:
            self._share(x, replica, mine)
        return x

    def _share(self, x: torch.Tensor, replica: Replica, mine: list[Overlap]) -> None:
        """Every rank of the group gets every slice."""
        group = self.groups.group(replica.ranks)
        for overlap in mine:
            rows = x[overlap.rows[0] - replica.start : overlap.rows[1] - replica.start]
            for flow in overlap.flows:
                part = rows.narrow(HIDDEN, flow.start, flow.end - flow.start)
                buffer = part.contiguous()
                dist.broadcast(buffer, flow.target, group=group)
                part.copy_(buffer)

    def finish(self) -> None:
        """Waits for what was sent."""
        if self.clock is not None:
            self.clock.drain()
        for work, _ in self.pending:
            work.wait()
        self.pending.clear()
