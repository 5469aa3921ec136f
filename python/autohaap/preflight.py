"""Before anything is built: does every rank stand on what the plan says?"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import torch
import torch.distributed as dist

from . import errors
from .errors import RuntimeProblem
from .plan import Plan

_LOWEST_BF16 = (8, 0)


def look(plan: Plan, local_rank: int, device: torch.device) -> dict[str, Any]:
    """What this rank finds."""
    found: dict[str, Any] = {
        "rank": dist.get_rank(), "host": socket.gethostname(), "torch": torch.__version__, "device": "cpu",
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "capability": None,
    }
    if device.type == "cuda":
        facts = torch.cuda.get_device_properties(local_rank)
        found.update(
            device=facts.name, memory_bytes=facts.total_memory, capability=[facts.major, facts.minor],
            built_for=torch.cuda.get_arch_list(),
        )
    return found


def _ring(device: torch.device) -> float:
    """Bytes per second of a message around all ranks: every neighbour is reached."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return 0.0
    out, back = torch.zeros(1 << 18, device=device), torch.empty(1 << 18, device=device)
    began = time.perf_counter()
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, out, (rank + 1) % world), dist.P2POp(dist.irecv, back, (rank - 1) % world)
    ])
    for work in works:
        work.wait()
    return out.numel() * 4 / (time.perf_counter() - began)


def check(plan: Plan, local_rank: int, device: torch.device, dtype: torch.dtype) -> list[str]:
    """Compares all ranks with the plan; the differences that allow a start. All ranks call this.

    Raises a coded problem for those that do not."""
    own = look(plan, local_rank, device)
    own["ring_bytes_per_s"] = _ring(device)
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, own)
    types = {}
    for node in plan.raw["cluster"]["nodes"]:
        index = 0
        for group in node["groups"]:
            for _ in range(group["count"]):
                types[f"{node['name']}:{index}"] = group["type"] if "type" in group else group["device_type"]
                index += 1
    notes, fatal = [], []
    for rank, found in enumerate(everyone):
        name = plan.devices[rank]
        planned = types.get(name, "?")
        if found["torch"] != everyone[0]["torch"]:
            fatal.append(f"rank {rank} has torch {found['torch']}, rank 0 {everyone[0]['torch']}")
        if found["device"] == "cpu":
            if rank == 0:
                notes.append(f"rank {rank} ({name}): cpu, the plan says {planned}")
            continue
        words = planned.replace("-", " ").split()
        if words and words[0].lower() not in found["device"].lower():
            notes.append(f"rank {rank} ({name}): {found['device']}, the plan says {planned}")
        wanted = plan.raw["cluster"]["device_types"].get(planned, {}).get("memory", {}).get("value")
        if wanted and found["memory_bytes"] < 0.9 * wanted:
            fatal.append(f"rank {rank} ({name}): {found['memory_bytes'] / 2**30:.0f} GiB, planned {wanted / 2**30:.0f}")
        capability = tuple(found["capability"])
        if dtype == torch.bfloat16 and capability < _LOWEST_BF16:
            fatal.append(f"rank {rank} ({name}): no bf16 at compute capability {capability}; plan with fp16")
        if f"sm_{capability[0]}{capability[1]}" not in found["built_for"] and not any(
            arch.startswith(f"sm_{capability[0]}") for arch in found["built_for"]
        ):
            fatal.append(f"rank {rank} ({name}): torch {found['torch']} holds no code for {capability}")
    if fatal:
        raise RuntimeProblem(
            errors.ENVIRONMENT, "pre-flight", "; ".join(fatal), "start on the devices that the plan names"
        )
    return notes
