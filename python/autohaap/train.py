"""Entry point of a rank: `python -m autohaap.train run.json`, started by `autohaap launch`.

The launcher writes `run.json`; RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from . import architecture, checkpoint, errors, preflight, weights
from .data import Tokens
from .errors import RuntimeProblem
from .executor import Executor, Measured
from .groups import Groups
from .optimizer import Optimizer, Settings
from .plan import Plan
from .virtual import VirtualClock

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}


class Run:
    """What the launcher wrote."""

    def __init__(self, path: Path) -> None:
        self.raw: dict[str, Any] = json.loads(path.read_text())
        self.folder = path.parent
        self.train: dict[str, Any] = self.raw["train"]
        self.steps: int = self.train["run"]["steps"]
        self.every: int = self.train["run"]["checkpoint_every"]
        self.checkpoints = Path(self.raw["checkpoints"])

    def settings(self, kind: str) -> Settings:
        """Of the optimizer."""
        o = self.train["optimizer"]
        return Settings(
            kind=kind, lr=o["lr"], betas=tuple(o["betas"]), eps=o["eps"], weight_decay=o["weight_decay"],
            clip=o["clip"] or None, warmup=o["warmup"], decay_steps=self.steps if o["cosine"] else 0,
        )


def _dtype(run: Run, plan: Plan) -> torch.dtype:
    name = run.train["run"].get("precision") or plan.precision
    if name not in DTYPES:
        raise RuntimeProblem(errors.NOT_EXECUTED, "training.precision", f"`{name}` is not executed")
    return DTYPES[name]


def _join(plan: Plan, run: Run) -> tuple[int, torch.device]:
    """Joins the other ranks."""
    try:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = int(os.environ["LOCAL_RANK"])
    except (KeyError, ValueError) as error:
        raise RuntimeProblem(errors.WORLD, "environment", f"not started by a launcher: {error}") from error
    if world != plan.world_size:
        raise RuntimeProblem(
            errors.WORLD, "WORLD_SIZE", f"{world} processes, the plan uses {plan.world_size} devices",
            "start one process per device of the plan",
        )
    backend = run.train["run"]["backend"]
    if backend == "nccl" and not torch.cuda.is_available():
        raise RuntimeProblem(errors.ENVIRONMENT, "backend", "nccl, but torch sees no GPU", "use `backend = \"gloo\"`")
    device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(max(1, run.train["run"]["threads"]))
    both = "cpu:gloo,cuda:nccl" if backend == "nccl" else "gloo"
    timeout = timedelta(seconds=run.train["run"]["timeout_s"])
    try:
        dist.init_process_group(both, timeout=timeout)
    except (RuntimeError, OSError, ValueError) as error:
        raise RuntimeProblem(
            errors.WORLD, "rendezvous", f"the ranks did not meet: {str(error).splitlines()[0]}",
            "check MASTER_ADDR, and that MASTER_PORT is free",
        ) from error
    return rank, device


def _beat(run: Run, rank: int) -> None:
    """A sign of life for the launcher; the file holds the process id."""
    (run.folder / f"heartbeat-{rank}").touch()


def _trace(run: Run, rank: int, step: int, began: float, measured: Measured, device: torch.device) -> None:
    """Spans of a step in Chrome's trace format, and the times per stage and kind of work."""
    events = [
        {"name": n, "cat": n.lstrip("0123456789")[0], "ph": "X", "pid": 0, "tid": rank,
         "ts": 1e6 * (a - began), "dur": 1e6 * (b - a)}
        for n, a, b in measured.spans
    ]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    (run.folder / f"trace-{rank}.json").write_text(json.dumps({"step": step, "device": name, "traceEvents": events}))


def train(run: Run) -> None:
    """Trains to the last step."""
    plan = Plan.read(run.folder / run.raw["plan"])
    config = Path(run.train["model"]["config"])
    arch = architecture.read(config)
    architecture.agree(arch, plan.model)
    dtype = _dtype(run, plan)
    rank, device = _join(plan, run)
    (run.folder / f"heartbeat-{rank}").write_text(str(os.getpid()))
    for note in preflight.check(plan, int(os.environ["LOCAL_RANK"]), device, dtype):
        if rank == 0:
            print(f"pre-flight: {note}", flush=True)
    groups = Groups(device.type)
    clock = None
    if run.raw.get("virtual"):
        clock = VirtualClock(run.raw["virtual"]["ranks"][rank], run.raw["virtual"]["scale"])
    seed = run.train["run"]["seed"]
    executor = Executor(
        plan, arch, run.raw["schedules"], groups, dtype=dtype, device=device, seed=seed, clock=clock
    )
    executor.beat = lambda: _beat(run, rank)
    if run.train["model"].get("weights"):
        weights.load(Path(run.train["model"]["weights"]), executor)
    optimizer = Optimizer(executor, groups, run.settings(plan.optimizer), plan.zero)
    first = 0
    place = checkpoint.latest(run.checkpoints) if run.raw["resume"] else None
    if place is not None:
        first = checkpoint.load(place, optimizer)["step"]
        if rank == 0:
            print(f"resumed from {place.name}", flush=True)
    tokens = Tokens(Path(run.train["data"]["tokens"]), plan.seq_len, arch.vocab, run.train["data"]["seed"])
    progress = (run.folder / "steps.jsonl").open("a") if rank == 0 else None
    for step in range(first, run.steps):
        _beat(run, rank)
        began = time.perf_counter()
        batch = tokens.batch(step, plan.global_batch)
        executor.dropout.step = step
        measured = executor.step(batch, optimizer.scale)
        own = measured.loss_sum / batch.num_tokens if executor.place.tp_rank == 0 else 0.0
        loss = torch.tensor(own, dtype=torch.float64, device=device)
        dist.all_reduce(loss)
        norm, finite = optimizer.reduce()
        optimizer.step(norm, finite)
        if clock is not None:
            clock.tail()
        dist.barrier()
        seconds = time.perf_counter() - began
        if step + 1 == run.steps or step == first + 1:
            _trace(run, rank, step, began, measured, device)
        if progress is not None:
            record = {
                "step": step + 1, "loss": float(loss), "gradient_norm": norm, "step_time_s": seconds,
                "tokens_per_s": plan.global_batch * plan.seq_len / seconds,
            }
            progress.write(json.dumps(record) + "\n")
            progress.flush()
        if (run.every and (step + 1) % run.every == 0) or step + 1 == run.steps:
            checkpoint.save(run.checkpoints, optimizer, step + 1, {"seed": seed, "plan": plan.raw["id"]})
    out = run.train["run"].get("export")
    if out and rank == 0:
        place = checkpoint.latest(run.checkpoints)
        assert place is not None
        checkpoint.export(place, arch, config, Path(out), dtype)
    dist.barrier()


def main() -> None:
    """Runs; every failure ends the process with a code for the launcher."""
    try:
        train(Run(Path(sys.argv[1])))
    except RuntimeProblem as problem:
        problem.report()
        # At once: other ranks may wait inside a collective for this one.
        os._exit(3)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
