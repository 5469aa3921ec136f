"""One training step of a rank: the actions of its row of the schedule, in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.distributed as dist

from . import errors, schedule
from .architecture import Architecture
from .dropout import Dropout
from .edges import Edge
from .errors import RuntimeProblem
from .groups import Groups, tensor_groups
from .model import Atoms, ExpertGroup
from .parallel import TensorParallel
from .parameters import Layout, initial, part
from .plan import Plan, Stage
from .schedule import Action
from .virtual import VirtualClock


class Sliceable(Protocol):
    """Rows of a global batch."""

    def __getitem__(self, rows: slice, /) -> torch.Tensor: ...


@dataclass
class Batch:
    """The global batch of a step: inputs and labels by slices of rows (tensors, or read on demand)."""

    tokens: Sliceable
    labels: Sliceable
    num_tokens: int
    """Labels that count, of the whole global batch."""


@dataclass
class Saved:
    """A micro-batch in flight."""

    x: torch.Tensor | None
    out: torch.Tensor
    grad: torch.Tensor | None = None


@dataclass
class Measured:
    """What a step did on this rank."""

    order: list[str] = field(default_factory=list)
    peak_in_flight: int = 0
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    loss_sum: float = 0.0


class Executor:
    """A rank's stages, parameters and edges."""

    def __init__(
        self,
        plan: Plan,
        arch: Architecture,
        schedules: list[str],
        groups: Groups,
        *,
        dtype: torch.dtype,
        device: torch.device,
        seed: int = 0,
        clock: VirtualClock | None = None,
    ) -> None:
        self.plan, self.arch, self.groups = plan, arch, groups
        self.dtype, self.device = dtype, device
        self.clock = clock
        self.beat: Callable[[], None] | None = None
        """Called after every action: a sign of life."""
        self.rank = dist.get_rank()
        self.layout = Layout(plan, arch)
        groups.prepare(tensor_groups(plan) | self.layout.groups())
        self.active = self.rank < plan.world_size
        self.dropout = Dropout(seed, plan.seq_len)
        self.edges: dict[tuple[int, int, str], Edge] = {}
        self._make_edges()
        if not self.active:
            return
        self.place = plan.places[self.rank]
        self.pipeline = plan.pipelines[self.place.pipeline]
        self.stages = {stage.index: stage for stage in plan.own_stages(self.rank)}
        owner = self.stages[self.place.owner]
        self.replica = owner.replicas[self.place.replica]
        tp = self.replica.tp
        mesh = groups.mesh(self.replica.ranks) if tp > 1 else None
        self.tp = TensorParallel(mesh, self.place.tp_rank, tp, plan.sequence_parallel)
        self.parameters = self._parameters(seed)
        self.atoms = Atoms(
            arch, self.parameters, self.tp, self._experts(owner), plan.num_atoms, plan.seq_len,
            self.layout.vocab, self.dropout,
        )
        rows = schedule.read(schedules[self.place.pipeline], f"schedule-{self.place.pipeline}.csv")
        self.actions = schedule.of_stage(rows, self.place.owner, f"schedule-{self.place.pipeline}.csv")
        # Gradients of half-precision parameters add up in fp32.
        self.main_dtype = dtype if dtype in (torch.float32, torch.float64) else torch.float32
        self.main: dict[str, torch.Tensor] = {}
        self.saved: dict[tuple[int, int], Saved] = {}
        self.local: dict[tuple[str, int, int], torch.Tensor] = {}
        self.began = self.ended = 0.0

    def _parameters(self, seed: int) -> dict[str, torch.Tensor]:
        found = {}
        for spec, held in self.layout.of_rank(self.rank):
            full = initial(spec, self.arch, seed)
            own = part(full, spec, held.start, held.end).to(self.device, self.dtype).clone()
            found[spec.name] = own.requires_grad_()
        return found

    def _experts(self, owner: Stage) -> ExpertGroup:
        if owner.ep == 1:
            return ExpertGroup(None, 1, 0)
        at = owner.ranks.index(self.rank)
        first = at - at % owner.ep
        return ExpertGroup(self.groups.group(owner.ranks[first : first + owner.ep]), owner.ep, at % owner.ep)

    def _make_edges(self) -> None:
        """Edges of all pipelines, in one order on every rank."""
        key = 0
        for pipeline in self.plan.pipelines:
            for a, b in zip(pipeline.stages, pipeline.stages[1:], strict=False):
                for source, target, way in ((a, b, "F"), (b, a, "B")):
                    if a.owner != b.owner:
                        edge = Edge(
                            self.groups, key, source, target, self.plan.seq_len, self.arch.hidden,
                            self.plan.sequence_parallel, self.dtype, self.device, self.clock,
                        )
                        self.groups.prepare_pairs(self.plan, edge.pairs())
                        self.edges[pipeline.index, a.index, way] = edge
                    key += 1

    def load(self, name: str, full: torch.Tensor) -> None:
        """Sets this rank's part of a parameter from its whole, unpadded value."""
        spec = self.layout.specs[name]
        if tuple(full.shape) != spec.saved_shape:
            raise RuntimeProblem(
                errors.WEIGHTS, name, f"shape {tuple(full.shape)} in the weights, {spec.saved_shape} in the model"
            )
        held = self.layout.held[name].get(self.rank)
        if held is None:
            return
        if spec.real is not None and spec.real < spec.shape[0]:
            full = torch.cat([full, full.new_zeros(spec.shape[0] - spec.real, *spec.shape[1:])])
        with torch.no_grad():
            self.parameters[name].copy_(part(full, spec, held.start, held.end))

    def step(self, batch: Batch, loss_scale: float = 1.0) -> Measured:
        """Forward and backward of the global batch; gradients of the rank are in `self.main` afterwards, not yet
        summed over the other holders."""
        measured = Measured()
        self.main = {n: torch.zeros_like(p, dtype=self.main_dtype) for n, p in self.parameters.items()}
        flying = 0
        for edge in self.edges.values():
            edge.elements_sent = 0
        for action in self.actions:
            self.began = time.perf_counter()
            getattr(self, f"_{action.work.lower()}")(action, batch, measured, loss_scale)
            if action.work == "F":
                flying += 1
                measured.peak_in_flight = max(measured.peak_in_flight, flying)
            elif action.work != "I":
                flying -= 1
            measured.order.append(str(action))
            measured.spans.append((str(action), self.began, self.ended))
            if self.beat is not None:
                self.beat()
        for edge in self.edges.values():
            edge.finish()
        return measured

    def _begin(self) -> float:
        """The inputs of an action have arrived."""
        self.began = time.perf_counter()
        return self.began

    def _end(self, began: float, stage: int, work: str) -> None:
        """The work of an action is done; what follows is sending."""
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        if self.clock is not None:
            self.clock.end(began, stage, work)
        self.ended = time.perf_counter()

    def _rows(self, micro_batch: int) -> range:
        """This replica's sequences of the global batch."""
        first = self.pipeline.first_row + micro_batch * self.pipeline.micro_batch
        return range(first + self.replica.start, first + self.replica.end)

    def _edge(self, stage: int, way: str) -> Edge | None:
        return self.edges.get((self.place.pipeline, stage, way))

    def _f(self, action: Action, batch: Batch, measured: Measured, loss_scale: float) -> None:
        s, m = action.stage, action.micro_batch
        stage = self.stages[s]
        rows = self._rows(m)
        x: torch.Tensor | None = None
        if s > 0:
            edge = self._edge(s - 1, "F")
            x = edge.receive(m) if edge else self.local.pop(("F", s, m))
            x = x.detach().requires_grad_()
        began = self._begin()
        y = batch.tokens[rows.start : rows.stop].to(self.device) if x is None else x
        for atom in stage.atoms:
            mode = stage.recompute.get(atom, "none")
            if atom == self.plan.num_atoms - 1:
                labels = batch.labels[rows.start : rows.stop].to(self.device)
                loss = self.atoms.loss(y, labels, mode)
                measured.loss_sum += float(loss.detach())
                y = loss * (loss_scale / batch.num_tokens)
            else:
                y = self.atoms.forward(atom, y, rows, mode)
        self._end(began, s, "F")
        self.saved[s, m] = Saved(x, y)
        if s + 1 < len(self.pipeline.stages):
            edge = self._edge(s, "F")
            if edge:
                edge.send(y.detach(), m)
            else:
                self.local["F", s + 1, m] = y.detach()

    def _gradient(self, s: int, m: int) -> torch.Tensor | None:
        if s + 1 == len(self.pipeline.stages):
            return None
        edge = self._edge(s, "B")
        return edge.receive(m) if edge else self.local.pop(("B", s, m))

    def _hand_back(self, s: int, m: int, grad: torch.Tensor) -> None:
        edge = self._edge(s - 1, "B")
        if edge:
            edge.send(grad, m)
        else:
            self.local["B", s - 1, m] = grad

    def _b(self, action: Action, batch: Batch, measured: Measured, loss_scale: float) -> None:
        s, m = action.stage, action.micro_batch
        grad = self._gradient(s, m)
        began = self._begin()
        saved = self.saved.pop((s, m))
        torch.autograd.backward(saved.out, grad)
        self._collect({n: p.grad for n, p in self.parameters.items() if p.grad is not None})
        for p in self.parameters.values():
            p.grad = None
        self._end(began, s, "B")
        if saved.x is not None:
            assert saved.x.grad is not None
            self._hand_back(s, m, saved.x.grad)

    def _i(self, action: Action, batch: Batch, measured: Measured, loss_scale: float) -> None:
        s, m = action.stage, action.micro_batch
        saved = self.saved[s, m]
        saved.grad = self._gradient(s, m)
        began = self._begin()
        grad = None
        if saved.x is not None:
            (grad,) = torch.autograd.grad(saved.out, [saved.x], saved.grad, retain_graph=True)
        self._end(began, s, "I")
        if grad is not None:
            self._hand_back(s, m, grad)

    def _w(self, action: Action, batch: Batch, measured: Measured, loss_scale: float) -> None:
        began = self._begin()
        saved = self.saved.pop((action.stage, action.micro_batch))
        names = list(self.parameters)
        grads: Any = torch.autograd.grad(
            saved.out, [self.parameters[n] for n in names], saved.grad, allow_unused=True
        )
        self._collect({n: g for n, g in zip(names, grads, strict=True) if g is not None})
        self._end(began, action.stage, "W")

    def _collect(self, grads: dict[str, torch.Tensor]) -> None:
        for name, grad in grads.items():
            self.main[name].add_(grad)
