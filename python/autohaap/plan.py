"""A plan file as the runtime sees it: ranks, stages, replicas, row intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import errors
from .errors import RuntimeProblem

PLAN_SCHEMA = "autohaap/plan@1"


@dataclass(frozen=True)
class Replica:
    """Ranks that hold one copy of a stage; they compute the rows [start, end) of every micro-batch."""

    ranks: tuple[int, ...]
    start: int
    end: int

    @property
    def tp(self) -> int:
        """Tensor parallelism (context parallelism is refused)."""
        return len(self.ranks)

    @property
    def rows(self) -> int:
        """Sequences of each micro-batch."""
        return self.end - self.start


@dataclass(frozen=True)
class Stage:
    """A (virtual) stage: an atom range on the replicas of its owner."""

    pipeline: int
    index: int
    owner: int
    first: int
    last: int
    recompute: dict[int, str]
    ep: int
    replicas: tuple[Replica, ...]

    @property
    def atoms(self) -> range:
        """Atom indices."""
        return range(self.first, self.last)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks, replica-major: consecutive `ep` of them form one expert group."""
        return tuple(rank for replica in self.replicas for rank in replica.ranks)


@dataclass(frozen=True)
class Pipeline:
    """Stages in chain order; its micro-batches are sequences [first_row, ...) of the global batch."""

    index: int
    micro_batch: int
    micro_batches: int
    first_row: int
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class Place:
    """Where a rank stands."""

    pipeline: int
    owner: int
    replica: int
    tp_rank: int


class Plan:
    """A plan that the runtime can execute."""

    def __init__(self, raw: dict[str, Any]) -> None:
        if raw.get("schema") != PLAN_SCHEMA:
            raise RuntimeProblem(
                errors.SCHEMA,
                "schema",
                f"the plan has schema `{raw.get('schema')}`, this runtime reads `{PLAN_SCHEMA}`",
                "plan again with the version of autohaap that launches",
            )
        self.raw = raw
        training = raw["training"]
        self.seq_len: int = training["seq_len"]
        self.global_batch: int = training["global_batch"]
        self.precision: str = training["precision"]
        self.optimizer: str = training["optimizer"]
        self.zero: int = training["zero"]
        self.sequence_parallel: bool = training["sequence_parallel"]
        self.model: dict[str, Any] = raw["model"]
        self.tied: bool = self.model["tied"]
        self.num_atoms = len(self.model["atoms"])
        self.devices = self._devices()
        rank_of = {device: rank for rank, device in enumerate(self.devices)}
        self.pipelines = self._pipelines(rank_of)
        self.places = self._places()

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Reads a plan file."""
        try:
            raw = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise RuntimeProblem(errors.SCHEMA, str(path), f"cannot read the plan: {error}") from error
        return cls(raw)

    @property
    def world_size(self) -> int:
        """Ranks in use."""
        return len(self.devices)

    @property
    def stages(self) -> Iterator[Stage]:
        """All stages of all pipelines."""
        for pipeline in self.pipelines:
            yield from pipeline.stages

    def _devices(self) -> list[str]:
        """Devices in use: by node in the cluster's order, then by index; the position is the rank."""
        order = {node["name"]: n for n, node in enumerate(self.raw["cluster"]["nodes"])}
        used = [
            device
            for pipeline in self.raw["pipelines"]
            for stage in pipeline["stages"]
            for replica in stage.get("replicas", [])
            for device in replica["devices"]
        ]

        def key(device: str) -> tuple[int, int]:
            node, _, index = device.rpartition(":")
            return order[node], int(index)

        return sorted(used, key=key)

    def _pipelines(self, rank_of: dict[str, int]) -> tuple[Pipeline, ...]:
        pipelines = []
        first_row = 0
        for p, raw in enumerate(self.raw["pipelines"]):
            stages: list[Stage] = []
            for s, entry in enumerate(raw["stages"]):
                owner = entry.get("on_stage")
                owner = s if owner is None else owner
                source = raw["stages"][owner]
                replicas, start = [], 0
                for r, replica in enumerate(source["replicas"]):
                    if replica["cp"] != 1:
                        raise RuntimeProblem(
                            errors.NOT_EXECUTED,
                            f"pipelines[{p}].stages[{s}].replicas[{r}].cp",
                            f"cp `{replica['cp']}`: the runtime does not execute context parallelism",
                            "plan with `--engine autohaap`",
                        )
                    ranks = tuple(rank_of[device] for device in replica["devices"])
                    replicas.append(Replica(ranks, start, start + replica["rows"]))
                    start += replica["rows"]
                if source.get("etp", 1) != 1:
                    raise RuntimeProblem(
                        errors.NOT_EXECUTED,
                        f"pipelines[{p}].stages[{s}].etp",
                        f"etp `{source['etp']}`: the runtime does not divide an expert",
                        "plan with `--engine autohaap`",
                    )
                recompute = {
                    atom: part["mode"]
                    for part in entry.get("recompute", [])
                    for atom in range(*part["atoms"])
                    if part["mode"] != "none"
                }
                first, last = entry["atoms"]
                stages.append(
                    Stage(p, s, owner, first, last, recompute, source.get("ep", 1), tuple(replicas))
                )
            pipelines.append(
                Pipeline(p, raw["micro_batch"], raw["micro_batches"], first_row, tuple(stages))
            )
            first_row += raw["micro_batch"] * raw["micro_batches"]
        return tuple(pipelines)

    def _places(self) -> dict[int, Place]:
        places = {}
        for stage in self.stages:
            if stage.owner == stage.index:
                for r, replica in enumerate(stage.replicas):
                    for t, rank in enumerate(replica.ranks):
                        places[rank] = Place(stage.pipeline, stage.index, r, t)
        return places

    def own_stages(self, rank: int) -> list[Stage]:
        """The (virtual) stages of a rank, in chain order."""
        place = self.places[rank]
        return [s for s in self.pipelines[place.pipeline].stages if s.owner == place.owner]
