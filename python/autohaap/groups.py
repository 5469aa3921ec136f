"""Process groups and device meshes by their ranks, made once and by every rank in the same order."""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .plan import Plan


class Groups:
    """All groups that plans need; several plans of one process share them."""

    def __init__(self, device_type: str) -> None:
        self.device_type = device_type
        self._groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        self._meshes: dict[tuple[int, ...], DeviceMesh] = {}
        self._pairs: dict[tuple[object, ...], dist.ProcessGroup] = {}

    def prepare(self, wanted: set[tuple[int, ...]]) -> None:
        """Makes the groups that are missing. Every rank calls this with the same set."""
        for ranks in sorted(wanted):
            if len(ranks) > 1 and ranks not in self._groups:
                group = dist.new_group(list(ranks))
                self._groups[ranks] = group
                if dist.get_rank() in ranks:
                    self._meshes[ranks] = DeviceMesh.from_group(group, self.device_type)

    def prepare_pairs(self, plan: Plan, wanted: set[tuple[object, ...]]) -> None:
        """One group per edge and direction where the backend orders messages by pair alone (NCCL)."""
        if self.device_type == "cpu":
            return
        for key in sorted(wanted, key=repr):
            if key not in self._pairs:
                self._pairs[key] = dist.new_group([key[-2], key[-1]])

    def pair(self, key: tuple[object, ...]) -> dist.ProcessGroup | None:
        """The group of a point-to-point edge; None: the default group, where messages carry tags."""
        return self._pairs.get(key)

    def group(self, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        """The group of these ranks."""
        return self._groups[ranks]

    def mesh(self, ranks: tuple[int, ...]) -> DeviceMesh:
        """The one-dimensional mesh of these ranks."""
        return self._meshes[ranks]


def tensor_groups(plan: Plan) -> set[tuple[int, ...]]:
    """Groups of tensor and expert parallelism, of replicas and stages."""
    found: set[tuple[int, ...]] = set()
    for stage in plan.stages:
        found.update(replica.ranks for replica in stage.replicas)
        ranks = stage.ranks
        if stage.ep > 1:
            found.update(tuple(ranks[i : i + stage.ep]) for i in range(0, len(ranks), stage.ep))
    return found
