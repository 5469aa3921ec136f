"""A virtual clock of devices and links: compute and transfers take the simulated time, scaled, by sleeping.

Many ranks then share few cores without disturbing each other, and a step's wall time is that of the mixed cluster.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .edges import Edge


class VirtualClock:
    """Times of the simulator for one rank."""

    def __init__(self, times: dict[str, Any], scale: float) -> None:
        self.times = times
        self.scale = scale
        self._due = 0.0
        self._free: dict[int, float] = {}
        self._queues: dict[int, queue.Queue[tuple[float, Edge, torch.Tensor, int, int]]] = {}

    def seconds(self, stage: int, work: str) -> float:
        """Scaled time of an action."""
        found: float = self.times["stages"][str(stage)][work]
        return found * self.scale

    def end(self, began: float, stage: int, work: str) -> None:
        """Sleeps until the action's time has passed."""
        _sleep_until(began + self.seconds(stage, work))

    def tail(self) -> None:
        """Sleeps the time of reduction and optimizer."""
        time.sleep(self.times["tail"] * self.scale)

    def send(self, edge: Edge, part: torch.Tensor, target: int, tag: int) -> None:
        """Posts a message after the link's time; transfers of one edge follow each other."""
        flows = max(1, sum(f.source == edge.rank for o in edge.overlaps for f in o.flows))
        seconds = self.times["edges"].get(str(edge.key), 0.0) * self.scale / flows
        due = max(time.perf_counter(), self._free.get(edge.key, 0.0)) + seconds
        self._free[edge.key] = due
        if edge.key not in self._queues:
            self._queues[edge.key] = queue.Queue()
            threading.Thread(target=self._post, args=(self._queues[edge.key],), daemon=True).start()
        self._queues[edge.key].put((due, edge, part, target, tag))

    @staticmethod
    def _post(messages: queue.Queue[tuple[float, Edge, torch.Tensor, int, int]]) -> None:
        while True:
            due, edge, part, target, tag = messages.get()
            _sleep_until(due)
            edge.start(part, target, tag)
            messages.task_done()

    def drain(self) -> None:
        """Waits until everything is posted."""
        for messages in self._queues.values():
            messages.join()


def _sleep_until(due: float) -> None:
    left = due - time.perf_counter()
    if left > 0:
        time.sleep(left)
