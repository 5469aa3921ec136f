"""Whole runs through `autohaap launch`: killed, hung, crashed during a save, resumed under other plans.

    runtime_runs.py AUTOHAAP FOLDER

FOLDER holds plans as `cargo xtask runtime DIR` writes them. Loss curves are compared with one process in fp64.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

STEPS = 12
TOLERANCE = 1e-10

AUTOHAAP, FOLDER = sys.argv[1], Path(sys.argv[2])
WORK = FOLDER / "runs"


def training(name: str, model: str, every: int, hang: int = 120, steps: int = STEPS) -> Path:
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.toml").write_text(
        f"""[model]
config = "{FOLDER / model / 'config.json'}"
[data]
tokens = "{WORK / 'tokens.bin'}"
seed = 3
[optimizer]
lr = 1e-2
[run]
steps = {steps}
checkpoint_every = {every}
precision = "fp64"
seed = 7
hang_s = {hang}
timeout_s = 60
"""
    )
    return folder


def launch(folder: Path, plan: Path, *flags: str) -> subprocess.Popen:
    command = [AUTOHAAP, "launch", str(plan), "--config", str(folder / "train.toml"), *flags]
    if "--python" not in flags:
        command += ["--python", sys.executable]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def losses(folder: Path) -> dict[int, float]:
    found = {}
    for file in sorted(folder.glob("run/attempt-*/steps.jsonl")):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            found[record["step"]] = record["loss"]
    return found


def wait_for(what, limit: float = 90.0):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError("nothing happened within the limit")


def pid(folder: Path, rank: int, attempt: int = 0) -> int:
    return int((folder / f"run/attempt-{attempt}/heartbeat-{rank}").read_text())


def alone(name: str, plan: Path, model: str, steps: int = STEPS) -> dict[int, float]:
    """The loss curve of one process: the same model, batch and sequence on one device."""
    raw = json.loads(plan.read_text())
    folder = training(name, model, 0, steps=steps)
    one = folder / "one.json"
    t = raw["training"]
    subprocess.run(
        [AUTOHAAP, "plan", "--model", str(FOLDER / model / "config.json"), "--cluster", "1x1 A100-80G", "--zero", "0",
         "--seq", str(t["seq_len"]), "--global-batch", str(t["global_batch"]), "--quiet", "-o", str(one)],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    process = launch(folder, one)
    _, text = process.communicate(timeout=180)
    assert process.returncode == 0, text
    return losses(folder)


def equal(found: dict[int, float], wanted: dict[int, float]) -> None:
    assert sorted(found) == sorted(wanted), (sorted(found), sorted(wanted))
    for step, loss in wanted.items():
        assert abs(found[step] - loss) <= TOLERANCE * abs(loss), (step, found[step], loss)


def killed_and_elastic(plan: Path, model: str, wanted: dict[int, float]) -> None:
    folder = training("elastic", model, 5)
    process = launch(folder, plan, "--elastic")
    wait_for(lambda: 6 in losses(folder))
    os.kill(pid(folder, 1), signal.SIGKILL)
    began = time.monotonic()
    _, text = process.communicate(timeout=180)
    assert process.returncode == 0, text
    assert "going on without" in text, text
    resumed = (folder / "run/attempt-1/rank-0.log").read_text()
    assert "resumed from step-" in resumed, resumed
    equal(losses(folder), wanted)
    print(f"kill -9, new plan, resumed: equal to one process ({time.monotonic() - began:.0f} s after the kill)")


def killed_in_save(plan: Path, model: str, wanted: dict[int, float]) -> None:
    folder = training("save", model, 1)
    checkpoints = folder / "run/checkpoints"
    process = launch(folder, plan)
    wait_for(lambda: 3 in losses(folder))
    wait_for(lambda: list(checkpoints.glob("partial-*")))
    os.kill(pid(folder, 0), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL, process.returncode
    left = [p.name for p in checkpoints.iterdir()]
    process = launch(folder, plan, "--resume")
    _, text = process.communicate(timeout=180)
    assert process.returncode == 0, text
    # Attempt 0 was written again: its steps are those after the checkpoint.
    found = losses(folder)
    equal(found, {s: l for s, l in wanted.items() if s >= min(found)})
    assert min(found) > 1
    print(f"killed during a save ({', '.join(sorted(left))}): resumed at step {min(found)}, equal to one process")


def other_plan(first: Path, second: Path, model: str, wanted: dict[int, float]) -> None:
    folder = training("other", model, 0, steps=STEPS // 2)
    process = launch(folder, first)
    _, text = process.communicate(timeout=180)
    assert process.returncode == 0, text
    before = losses(folder)
    training("other", model, 0)
    process = launch(folder, second, "--resume")
    _, text = process.communicate(timeout=180)
    assert process.returncode == 0, text
    equal({**before, **losses(folder)}, wanted)
    print("saved under one plan, continued under another: equal to one process")


def hung(plan: Path, model: str) -> None:
    folder = training("hung", model, 0, hang=4, steps=10**6)
    process = launch(folder, plan)
    wait_for(lambda: 3 in losses(folder))
    stopped = pid(folder, 1)
    os.kill(stopped, signal.SIGSTOP)
    began = time.monotonic()
    _, text = process.communicate(timeout=30)
    assert process.returncode == 124 and "E610" in text and "rank 1 " in text, (process.returncode, text)
    print(f"a stopped process is noticed after {time.monotonic() - began:.1f} s and named")


def damaged(plan: Path, model: str) -> None:
    """The newest checkpoint of the run of [`other_plan`] with one byte changed."""
    folder = WORK / "other"
    newest = max((folder / "run/checkpoints").glob("step-*"), key=lambda p: int(p.name[5:]))
    file = next(newest.glob("*.distcp"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    process = launch(folder, plan, "--resume")
    _, text = process.communicate(timeout=60)
    assert process.returncode == 3 and "E607" in text, (process.returncode, text)
    print("a damaged checkpoint is refused with E607")


def refused(plan: Path, model: str) -> None:
    folder = training("refused", model, 0)
    raw = json.loads(plan.read_text())

    def answer(change, *flags: str) -> str:
        copy = json.loads(json.dumps(raw))
        change(copy)
        path = folder / "changed.json"
        path.write_text(json.dumps(copy))
        process = launch(folder, path, *flags)
        _, text = process.communicate(timeout=60)
        assert process.returncode == 2, (process.returncode, text)
        return text

    def three(p):
        p["training"]["zero"] = 3

    assert "E602" in answer(three)
    import socket

    with socket.socket() as busy:
        busy.bind(("0.0.0.0", 0))
        busy.listen()
        assert "E605" in answer(lambda p: None, "--master", f"127.0.0.1:{busy.getsockname()[1]}")
    assert "E603" in answer(lambda p: None, "--python", "/nowhere/python")

    def schema(p):
        p["schema"] = "autohaap/plan@9"

    text = answer(schema)
    assert "error[E" in text, text
    print("zero 3, a busy port, a missing interpreter and another schema are refused with codes")


def main() -> None:
    WORK.mkdir(exist_ok=True)
    cases = json.loads((FOLDER / "cases.json").read_text())
    text = np.frombuffer((Path(__file__).parents[2] / "README.md").read_bytes(), dtype=np.uint8)
    (text % 50).astype(np.uint16).tofile(WORK / "tokens.bin")
    (WORK / "tokens.json").write_text(json.dumps({"dtype": "uint16", "tokens": len(text), "vocab": 50}))

    def ranks(case) -> int:
        raw = json.loads((FOLDER / case["plan"]).read_text())
        return sum(len(r["devices"]) for p in raw["pipelines"] for s in p["stages"] for r in s.get("replicas", []))

    small = [c for c in cases if 3 <= ranks(c) <= 5]
    # Two plans of one model with the same global batch.
    pairs = [
        (a, b) for a in small for b in small
        if a is not b and a["model"] == b["model"] and batch(a) == batch(b)
    ]
    first, second = pairs[0]
    model, plan, other = first["model"], FOLDER / first["plan"], FOLDER / second["plan"]
    print(f"{model}: {plan.name} on {ranks(first)} ranks, {other.name} on {ranks(second)} ranks", flush=True)
    began = time.monotonic()
    refused(plan, model)
    wanted = alone("alone", plan, model)
    killed_and_elastic(plan, model, wanted)
    killed_in_save(plan, model, wanted)
    other_plan(plan, other, model, wanted)
    damaged(plan, model)
    hung(plan, model)
    print(f"runs: {time.monotonic() - began:.0f} s")


def batch(case) -> int:
    return json.loads((FOLDER / case["plan"]).read_text())["training"]["global_batch"]


if __name__ == "__main__":
    main()
