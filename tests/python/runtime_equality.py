"""Random legal plans against one process of the `transformers` library, in fp64.

    runtime_equality.py FOLDER WORLD [FIRST LAST]

FOLDER holds `cases.json` and plans as `cargo xtask runtime DIR` writes them. One launch runs all of them: loss and
every gradient (difference <= 1e-10 x global gradient norm), parameters after five AdamW steps with clipping, executed
order, peak in-flight counts and elements per edge; then plans with a deliberate mistake, which must fail.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TQDM_DISABLE"] = "1"

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM

from autohaap import architecture, names
from autohaap.executor import Batch, Executor
from autohaap.groups import Groups
from autohaap.optimizer import Optimizer, Settings, piece_shape
from autohaap.parameters import Layout, initial
from autohaap.plan import Plan

TOLERANCE = 1e-10
STEPS = 5
MISTAKES = ("mean", "rows", "tied")
SETTINGS = Settings(lr=1e-2, weight_decay=0.1, clip=0.5, betas=(0.9, 0.95), eps=1e-8)


def batch_of(plan: Plan, vocab: int, step: int) -> Batch:
    generator = torch.Generator().manual_seed(1000 + step)
    tokens = torch.randint(0, vocab, (plan.global_batch, plan.seq_len + 1), generator=generator)
    labels = tokens[:, 1:].clone()
    # Padding that differs by row: means of means would differ.
    for row in range(plan.global_batch):
        labels[row, : row % 4] = -100
    return Batch(tokens[:, :-1].contiguous(), labels, int((labels >= 0).sum()))


def hf_model(config_path: Path, parameters: dict[str, torch.Tensor], arch) -> torch.nn.Module:
    """The same model in one process, from the library."""
    config = AutoConfig.from_pretrained(config_path.parent)
    folder = config_path.parent / "hf"
    folder.mkdir(exist_ok=True)
    save_file(names.to_hf(arch, parameters), folder / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(folder)
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="sdpa", output_loading_info=True
    )
    # The grouped product of experts does not exist in double precision.
    model.set_experts_implementation("eager")
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    return model


class Double(TorchFunctionMode):
    """Keeps the library's norms, softmaxes and routers, which go through single precision, in double."""

    active = True

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if self.active:
            if func is torch.Tensor.float:
                return args[0]
            if func is torch.Tensor.to and len(args) > 1 and args[1] is torch.float32:
                args = (args[0], torch.float64, *args[2:])
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)

    def watch(self, model: torch.nn.Module) -> None:
        """Rotary tables stay as they are everywhere: single precision."""
        for name, module in model.named_modules():
            if name.endswith("rotary_emb"):
                module.register_forward_pre_hook(lambda *_: setattr(self, "active", False))
                module.register_forward_hook(lambda *_: setattr(self, "active", True))


def hf_values(model: torch.nn.Module, arch, specs, gradient: bool) -> dict[str, torch.Tensor]:
    """Parameters or gradients by our global names."""
    own = dict(model.named_parameters())
    found = {}
    for spec in specs:
        name = names.of_parameter(arch, spec.name)
        tensor = own.get(name)
        if tensor is None:
            tensor = expert(own, arch, spec.name)
            value = tensor(gradient)
        else:
            value = tensor.grad if gradient else tensor.detach()
        found[spec.name] = names.from_hf(arch, spec.name, value)
    return found


def expert(own, arch, name: str):
    """A part of the library's stacked expert tensors."""
    layer = name.split(".")[1]
    base = f"model.layers.{layer}.mlp."
    parts = name.split(".")

    def pick(gradient: bool) -> torch.Tensor:
        def of(key: str) -> torch.Tensor:
            p = own[base + key]
            return p.grad if gradient else p.detach()

        if "router" in name:
            return of("gate.weight")
        e, what = int(parts[4]), parts[5]
        if what == "down":
            return of("experts.down_proj")[e]
        both = of("experts.gate_up_proj")[e]
        half = both.shape[0] // 2
        return both[:half] if what == "gate" else both[half:]

    return pick


class Reference:
    """Losses, gradients and parameters of five steps in one process."""

    def __init__(self, plan: Plan, arch, config_path: Path) -> None:
        layout = Layout(plan, arch)
        self.specs = [s for s in layout.specs.values()]
        start = {s.name: initial(s, arch, 7).double()[: s.saved_shape[0]] for s in self.specs}
        model = hf_model(config_path, start, arch)
        decays = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        optimizer = torch.optim.AdamW(
            [{"params": decays, "weight_decay": SETTINGS.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=SETTINGS.lr, betas=SETTINGS.betas, eps=SETTINGS.eps,
        )
        self.losses, self.norms = [], []
        double = Double()
        double.watch(model)
        for step in range(STEPS):
            batch = batch_of(plan, arch.vocab, step)
            with double:
                logits = model(input_ids=batch.tokens, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-100, reduction="sum"
            ) / batch.num_tokens
            optimizer.zero_grad()
            loss.backward()
            if step == 0:
                self.gradients = hf_values(model, arch, self.specs, True)
                self.gradients = {n: g.clone() for n, g in self.gradients.items()}
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS.clip)
            optimizer.step()
            self.losses.append(float(loss))
            self.norms.append(float(norm))
        self.parameters = hf_values(model, arch, self.specs, False)


def gather(items: list, world: int) -> list:
    """Slices of all ranks on every rank."""
    everything: list = [None] * world
    dist.all_gather_object(everything, items)
    return [item for some in everything for item in some]


def assemble(specs, slices) -> dict[str, torch.Tensor]:
    whole = {s.name: torch.full(s.shape, float("nan"), dtype=torch.float64) for s in specs}
    dims = {s.name: s for s in specs}
    for name, start, end, value in slices:
        whole[name].narrow(dims[name].dim, start, end - start).copy_(value)
    return {n: v[: dims[n].saved_shape[0]] for n, v in whole.items()}


def run_case(folder: Path, case: dict, groups: Groups, references: dict, mistake: str | None) -> list[str]:
    rank, world = dist.get_rank(), dist.get_world_size()
    plan = Plan.read(folder / case["plan"])
    config_path = folder / case["model"] / "config.json"
    arch = architecture.read(config_path)
    architecture.agree(arch, plan.model)
    executor = Executor(plan, arch, case["schedules"], groups, dtype=torch.float64, device=torch.device("cpu"), seed=7)
    if mistake == "mean" and executor.active:
        # A mean over replicas in place of the sum, for one parameter's holders.
        for name, holders in executor.layout.held.items():
            if name.endswith("norm.weight"):
                for r, held in holders.items():
                    holders[r] = type(held)(held.rank, held.start, held.end, held.weight / len(holders))
    if mistake == "rows":
        # The first replica of the head counts twice.
        for holders in executor.layout.held.values():
            for r in plan.pipelines[0].stages[-1].replicas[0].ranks:
                if r in holders:
                    holders[r] = type(holders[r])(r, holders[r].start, holders[r].end, 2 * holders[r].weight)
    if mistake == "tied":
        for held in executor.layout.held["embed.weight"].values():
            if held.rank in plan.pipelines[0].stages[-1].ranks:
                executor.layout.held["embed.weight"][held.rank] = type(held)(held.rank, held.start, held.end, 0.0)
    optimizer = Optimizer(executor, groups, SETTINGS, plan.zero)
    key = (case["model"], plan.global_batch)
    if rank == 0 and key not in references:
        references[key] = Reference(plan, arch, config_path)
    problems: list[str] = []
    for step in range(STEPS if mistake is None else 1):
        batch = batch_of(plan, arch.vocab, step)
        executor.dropout.step = step
        loss = torch.zeros((), dtype=torch.float64)
        measured = None
        if executor.active:
            measured = executor.step(batch)
            if executor.place.tp_rank == 0:
                loss += measured.loss_sum / batch.num_tokens
        dist.all_reduce(loss)
        norm, finite = optimizer.reduce()
        assert finite
        if step == 0:
            own = [(p.spec.name, p.start, p.end, g) for p, g in optimizer.gradients()] if executor.active else []
            slices = gather(own, world)
            if measured is not None:
                problems += facts(plan, case, executor, measured)
            sent = gather([(key, edge.elements_sent) for key, edge in executor.edges.items()], world)
            if rank == 0:
                problems += edge_problems(plan, case, sent)
        optimizer.step(norm, finite)
        if rank == 0:
            reference = references[key]
            if step == 0:
                specs = list(executor.layout.specs.values())
                gradients = assemble(specs, slices)
                for name, wanted in reference.gradients.items():
                    error = float((gradients[name] - wanted).abs().max())
                    if not error <= TOLERANCE * reference.norms[0]:
                        problems.append(f"gradient of {name}: off by {error:.3g}, norm {reference.norms[0]:.3g}")
            if not abs(float(loss) - reference.losses[step]) <= TOLERANCE * max(1.0, reference.losses[step]):
                problems.append(f"loss of step {step}: {float(loss)} instead of {reference.losses[step]}")
            if not abs(norm - reference.norms[step]) <= 1e-9 * reference.norms[step]:
                problems.append(f"norm of step {step}: {norm} instead of {reference.norms[step]}")
    if mistake is None:
        own = []
        if executor.active:
            for name, p in executor.parameters.items():
                held = executor.layout.held[name][rank]
                own.append((name, held.start, held.end, p.detach()))
        slices = gather(own, world)
        if rank == 0:
            final = assemble(list(executor.layout.specs.values()), slices)
            for name, wanted in references[key].parameters.items():
                error = float((final[name] - wanted).abs().max())
                # Adam divides by the root of tiny second moments: errors grow with 1 / eps near zero gradients.
                if not error <= 1e-7:
                    problems.append(f"{name} after {STEPS} steps: off by {error:.3g}")
    return gather(problems, world)


def caught(folder: Path, cases: list, groups: Groups, references: dict, mistake: str) -> bool:
    """Whether a deliberate mistake makes a plan fail."""
    for case in cases:
        plan = Plan.read(folder / case["plan"])
        if mistake in ("mean", "rows") and len(plan.pipelines[0].stages[-1].replicas) < 2:
            continue
        if mistake == "tied" and not (plan.tied and len(plan.pipelines) == 1 and len(plan.pipelines[0].stages) == 3):
            continue
        found = bool(run_case(folder, case, groups, references, mistake))
        if dist.get_rank() == 0:
            print(f"mistake `{mistake}` in {case['plan']}: {'caught' if found else 'NOT CAUGHT'}", flush=True)
        return found
    return True


def facts(plan: Plan, case: dict, executor: Executor, measured) -> list[str]:
    """Order, in-flight counts and elements per edge against the simulator's."""
    problems = []
    p = executor.place.pipeline
    rows = [row.split(",") for row in case["schedules"][p].splitlines()]
    row = next(r for r in rows if any(measured.order[0] in cell.replace("(", "").split(";") for cell in r))
    expected = [action for cell in row for action in cell.strip("()").replace(")OVERLAP_F_B", "").split(";")]
    if measured.order != expected:
        problems.append(f"order {measured.order} instead of {expected}")
    number = rows.index(row)
    peak = case["peak_in_flight"][p][number]
    if measured.peak_in_flight != peak:
        problems.append(f"row {number}: {measured.peak_in_flight} in flight instead of {peak}")
    return problems


def edge_problems(plan: Plan, case: dict, executors_sent: list) -> list[str]:
    total: dict = {}
    for key, elements in executors_sent:
        total[key] = total.get(key, 0) + elements
    problems = []
    for (p, s, way), elements in total.items():
        field = "forward_elements" if way == "F" else "backward_elements"
        wanted = case[field][p][s] * plan.pipelines[p].micro_batches
        if abs(wanted - elements) > 0.5:
            problems.append(f"pipeline {p} edge {s}{way}: {elements} elements instead of {wanted}")
    return problems


def worker(rank: int, world: int, folder: str, first: int, last: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    path = Path(folder)
    cases = json.loads((path / "cases.json").read_text())[first:last]
    groups = Groups("cpu")
    references: dict = {}
    failed = 0
    covered: set[str] = set()
    for number, case in enumerate(cases):
        began = time.perf_counter()
        try:
            problems = run_case(path, case, groups, references, None)
        except Exception:
            traceback.print_exc()
            print(f"rank {rank} failed at {case['plan']} {case['model']}", flush=True)
            os._exit(1)
        if rank == 0:
            failed += bool(problems)
            state = "FAILED" if problems else "ok"
            print(f"{case['plan']} {case['model']} {state} {time.perf_counter() - began:.2f} s", flush=True)
            for problem in problems[:8]:
                print("   ", problem, flush=True)
    for mistake in MISTAKES:
        failed += not caught(path, cases, groups, references, mistake)
    dist.destroy_process_group()
    if failed:
        sys.exit(1)


def main() -> None:
    folder, world = sys.argv[1], int(sys.argv[2])
    first, last = (int(a) for a in sys.argv[3:5]) if len(sys.argv) > 4 else (0, 10**6)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Forked before any thread exists: every rank shares the imports.
    mp.start_processes(worker, (world, folder, first, last, port), nprocs=world, start_method="fork")


if __name__ == "__main__":
    main()
