"""Torch's own pipeline schedules, and torch's opinion of ours.

    torch_schedules.py dump            orders of torch's schedules, one JSON object a line
    torch_schedules.py load FOLDER     loads every FOLDER/*.csv as torch's runtime does, with its checks

Schedules are built on mocked stages: no process group, no device, no model.
"""

import json
import sys
from pathlib import Path

from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    _PipelineScheduleRuntime,
    _simulate_comms_compute,
)
from torch.distributed.pipelining.stage import _PipelineStageBase


class MockStage(_PipelineStageBase):
    """A stage with the numbers that schedules ask for, and nothing else."""

    def __init__(self, index, num_stages, num_ranks, rank):
        self.stage_index = index
        self.num_stages = num_stages
        self.group_size = num_ranks
        self.group_rank = rank
        self.group = None
        self.has_backward = False
        self.submod = None
        self.stage_index_to_group_rank = {s: s % num_ranks for s in range(num_stages)}
        self.calls = []

    def forward_one_chunk(self, micro_batch, *_args, **_options):
        self.calls.append(f"{self.stage_index}F{micro_batch}")

    def backward_one_chunk(self, micro_batch, **_options):
        self.calls.append(f"{self.stage_index}B{micro_batch}")

    def perform_reduce_grad(self, *_args):
        pass

    def release_fwd_send_outputs(self, *_args):
        pass

    def get_fwd_recv_ops(self, _micro_batch):
        return []

    get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = get_fwd_recv_ops


# The abstract methods move tensors, which nothing here does.
MockStage.__abstractmethods__ = frozenset()


def stages(num_ranks, chunks, rank=0):
    return [MockStage(rank + c * num_ranks, num_ranks * chunks, num_ranks, rank) for c in range(chunks)]


SINGLE = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}
MULTI = {
    "Interleaved1F1B": (ScheduleInterleaved1F1B, (1, 2, 3)),
    "LoopedBFS": (ScheduleLoopedBFS, (1, 2, 3)),
    "InterleavedZeroBubble": (ScheduleInterleavedZeroBubble, (1, 2, 3)),
    "ZBVZeroBubble": (ScheduleZBVZeroBubble, (2,)),
    "DualPipeV": (ScheduleDualPipeV, (2,)),
}


def rows(order, num_ranks):
    compute = "FBIW"
    cells = []
    for rank in range(num_ranks):
        texts = [str(a) for a in order[rank] if a is not None]
        plain = [t for t in texts if t.startswith("(") or t.lstrip("0123456789")[0] in compute]
        # REDUCE_GRAD, RESHARD and RECV start with R, SEND with S, UNSHARD with U, WAIT with WA.
        cells.append([t for t in plain if "WAIT" not in t])
    return cells


def dump():
    for num_ranks in (1, 2, 3, 4, 8):
        for micro_batches in (1, 2, 3, 4, 6, 8, 9, 12, 16, 17, 24):
            for name, kind in SINGLE.items():
                # What these two run, not the list they print: that of 1F1B is off by one on the last rank.
                try:
                    order = [executed(kind, num_ranks, rank, micro_batches) for rank in range(num_ranks)]
                except ValueError:
                    order = None
                emit(name, num_ranks, 1, micro_batches, order)
            for name, (kind, chunk_counts) in MULTI.items():
                for chunks in chunk_counts:
                    try:
                        schedule = kind(stages(num_ranks, chunks), micro_batches)
                    except ValueError:
                        # Torch refuses this size.
                        emit(name, num_ranks, chunks, micro_batches, None)
                        continue
                    emit(name, num_ranks, chunks, micro_batches, schedule.pipeline_order)


def executed(kind, num_ranks, rank, micro_batches):
    (stage,) = stages(num_ranks, 1, rank)
    schedule = kind(stage, micro_batches)
    schedule._initialize_stage = lambda *_: None
    schedule._step_microbatches([()] * micro_batches, [{}] * micro_batches)
    return stage.calls


def emit(name, num_ranks, chunks, micro_batches, order):
    row = {"schedule": name, "ranks": num_ranks, "chunks": chunks, "micro_batches": micro_batches}
    row["rows"] = None if order is None else rows(order, num_ranks)
    print(json.dumps(row))


def load(folder):
    for path in sorted(Path(folder).glob("*.csv")):
        text = path.read_text().splitlines()
        num_ranks = len(text)
        found = [int(c.strip("(").split("F")[0]) for row in text for c in row.split(",") if "F" in c.split(";")[0]]
        num_stages = max(found) + 1
        micro_batches = int(path.stem.split("-m")[-1])
        own = [s for s in range(num_stages) if f"{s}F0" in text[0]]
        mocked = [MockStage(s, num_stages, num_ranks, 0) for s in own]
        schedule = _PipelineScheduleRuntime(mocked, micro_batches)
        schedule._load_csv(str(path), format="compute_only")
        # The lowering to communication has raised where no rank can go on. Executed step by step it raises on a deadlock;
        # that simulator knows neither sharded parameters nor overlapped pairs.
        if "OVERLAP" not in path.read_text():
            lowered = {
                rank: [a for a in actions if a is None or not any(w in str(a) for w in ("SHARD", "REDUCE_GRAD"))]
                for rank, actions in schedule.pipeline_order_with_comms.items()
            }
            _simulate_comms_compute(lowered, lambda s: schedule.stage_index_to_group_rank[s], num_stages)
        print(path.name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        load(sys.argv[2])
    else:
        dump()
