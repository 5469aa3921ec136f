"""Start from an ordinary Hugging Face checkpoint (safetensors)."""

from __future__ import annotations

import json
from pathlib import Path

from . import errors, names
from .errors import RuntimeProblem
from .executor import Executor


def load(folder: Path, executor: Executor) -> None:
    """Fills a rank's parameters; only the files and tensors that it needs are read."""
    from safetensors import SafetensorError, safe_open

    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file():
            file_of = {n: folder / f for n, f in json.loads(index.read_text())["weight_map"].items()}
        else:
            single = folder / "model.safetensors"
            with safe_open(single, "pt") as file:
                file_of = dict.fromkeys(file.keys(), single)
        for name in executor.parameters:
            key = names.of_parameter(executor.arch, name)
            # GPT-2's checkpoints leave the prefix out.
            key = key if key in file_of else key.removeprefix("transformer.")
            if key not in file_of:
                raise RuntimeProblem(
                    errors.WEIGHTS, str(folder), f"no tensor `{key}`", "give a checkpoint of this architecture"
                )
            with safe_open(file_of[key], "pt") as file:
                executor.load(name, names.from_hf(executor.arch, name, file.get_tensor(key)))
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise RuntimeProblem(errors.WEIGHTS, str(folder), f"cannot read the weights: {error}") from error
