"""Checkpoints by global names through torch.distributed.checkpoint: saved under one plan, loaded under any other.

A checkpoint is a folder `step-N`: tensors (`layers.17.attn.q.weight`, `adam.exp_avg.<name>`, ...) without padding,
and `state.json` with the step, the loss scale and a digest of every file. It is written beside its place and renamed
when complete, so a crash during a save leaves the previous one as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from . import errors, names
from .architecture import Architecture
from .errors import RuntimeProblem
from .optimizer import Bucket, Optimizer
from .parameters import Piece, specs_of_atom

FORMAT = "autohaap/checkpoint@1"
MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Chunk:
    """A slice of a global tensor."""

    name: str
    offsets: torch.Size
    full: torch.Size
    tensor: torch.Tensor

    @property
    def storage(self) -> ChunkStorageMetadata:
        """Where it lies."""
        return ChunkStorageMetadata(self.offsets, self.tensor.size())


class _Save(DefaultSavePlanner):
    def __init__(self, chunks: list[Chunk]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.chunks = {(c.name, c.offsets): c for c in chunks}

    def create_local_plan(self) -> SavePlan:
        items = [
            WriteItem(
                index=MetadataIndex(c.name, c.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(c.storage, TensorProperties.create_from_tensor(c.tensor), c.full),
            )
            for c in self.chunks.values()
        ]
        self.plan = SavePlan(items)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        return self.chunks[write_item.index.fqn, write_item.index.offset].tensor


class _Load(DefaultLoadPlanner):
    def __init__(self, chunks: list[Chunk]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.chunks = {(c.name, c.offsets): c for c in chunks}

    def create_local_plan(self) -> LoadPlan:
        items: list[ReadItem] = []
        for chunk in self.chunks.values():
            stored = self.metadata.state_dict_metadata.get(chunk.name)
            if not isinstance(stored, TensorStorageMetadata) or stored.size != chunk.full:
                found = stored.size if isinstance(stored, TensorStorageMetadata) else None
                raise RuntimeProblem(
                    errors.CHECKPOINT, chunk.name,
                    f"the checkpoint holds shape `{found}`, the model wants `{tuple(chunk.full)}`",
                    "resume with the model that was trained",
                )
            items += create_read_items_for_chunk_list(chunk.name, stored, [chunk.storage])
        return LoadPlan(items)

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        tensor = self.chunks[read_item.dest_index.fqn, read_item.dest_index.offset].tensor
        for dim, (offset, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            tensor = tensor.narrow(dim, offset, length)
        return tensor

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        pass


def _chunk(name: str, piece: Piece, tensor: torch.Tensor) -> Chunk | None:
    """The slice without padding; None: all of it is padding."""
    spec = piece.spec
    if spec.real is not None and spec.dim == 0:
        rows = min(piece.end, spec.real) - piece.start
        if rows <= 0:
            return None
        tensor = tensor[:rows]
    offsets = [0] * len(spec.shape)
    offsets[spec.dim] = piece.start
    return Chunk(name, torch.Size(offsets), torch.Size(spec.saved_shape), tensor)


def _states(optimizer: Optimizer, bucket: Bucket) -> dict[str, torch.Tensor]:
    """Flat tensors of a bucket by prefix of their names."""
    found = {"": bucket.master.detach()}
    if optimizer.settings.kind != "sgd":
        assert optimizer.inner is not None
        state = optimizer.inner.state[bucket.master]
        for moment in MOMENTS:
            found[f"adam.{moment}."] = state[moment] if moment in state else torch.zeros_like(found[""])
    return found


def save(folder: Path, optimizer: Optimizer, step: int, facts: dict[str, Any]) -> Path:
    """Saves everything under `folder/step-N`; all ranks call this."""
    place, partial = folder / f"step-{step}", folder / f"partial-{step}"
    if dist.get_rank() == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    dist.barrier()
    chunks = []
    for bucket in optimizer.buckets:
        for prefix, own in _states(optimizer, bucket).items():
            flat = bucket.whole(own, optimizer.groups)
            if bucket.index == 0:
                pieces = (_chunk(prefix + p.spec.name, p, value) for p, value in bucket.slices(flat))
                chunks += [c for c in pieces if c is not None]
    dcp.save({}, storage_writer=dcp.FileSystemWriter(partial), planner=_Save(chunks))
    if dist.get_rank() == 0:
        state = {
            "format": FORMAT, "step": step, "optimizer_steps": optimizer.steps, "loss_scale": optimizer.scale,
            "good_steps": optimizer.good_steps, **facts,
            "digests": {f.name: _digest(f) for f in sorted(partial.iterdir())},
        }
        _write(partial / "state.json", json.dumps(state, indent=1))
        replaced = folder / f"replaced-{step}"
        if place.exists():
            os.replace(place, replaced)
        os.replace(partial, place)
        shutil.rmtree(replaced, ignore_errors=True)
        _write(folder / "latest", place.name)
        for old in _steps(folder)[:-2]:
            shutil.rmtree(folder / f"step-{old}", ignore_errors=True)
    dist.barrier()
    return place


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _steps(folder: Path) -> list[int]:
    return sorted(int(f.name[5:]) for f in folder.glob("step-*") if f.name[5:].isdigit())


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint."""
    found = _steps(folder) if folder.is_dir() else []
    return folder / f"step-{found[-1]}" if found else None


def verify(place: Path) -> dict[str, Any]:
    """The state of a checkpoint whose files are as they were written."""
    try:
        state: dict[str, Any] = json.loads((place / "state.json").read_text())
        if state["format"] != FORMAT:
            raise ValueError(f"format `{state['format']}`")
        for name, digest in state["digests"].items():
            if _digest(place / name) != digest:
                raise ValueError(f"`{name}` has another digest than when it was written")
    except (OSError, ValueError, KeyError) as error:
        raise RuntimeProblem(
            errors.CHECKPOINT, str(place), f"the checkpoint is damaged: {error}", "remove it; an earlier one is used"
        ) from error
    return state


def load(place: Path, optimizer: Optimizer) -> dict[str, Any]:
    """Loads parameters and moments into this plan's slices; all ranks call this."""
    answer: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            answer = [verify(place)]
        except RuntimeProblem as problem:
            answer = [problem]
    dist.broadcast_object_list(answer)
    if isinstance(answer[0], RuntimeProblem):
        raise answer[0]
    state: dict[str, Any] = answer[0]
    chunks, flats = [], []
    for bucket in optimizer.buckets:
        for prefix, own in _states(optimizer, bucket).items():
            flat = torch.zeros(bucket.padded, dtype=own.dtype, device=own.device)
            flats.append((bucket, prefix, flat))
            pieces = (_chunk(prefix + p.spec.name, p, value) for p, value in bucket.slices(flat))
            chunks += [c for c in pieces if c is not None]
    dcp.load({}, storage_reader=dcp.FileSystemReader(place), planner=_Load(chunks))
    for bucket, prefix, flat in flats:
        own = flat[bucket.mine * bucket.part : (bucket.mine + 1) * bucket.part]
        if prefix == "":
            bucket.master.data.copy_(own)
        elif optimizer.inner is not None:
            moments = optimizer.inner.state[bucket.master]
            moments["step"] = torch.tensor(float(state["optimizer_steps"]))
            moments[prefix.split(".")[1]] = own.clone()
    for bucket in optimizer.buckets:
        bucket.publish(optimizer.groups)
    optimizer.steps, optimizer.scale = state["optimizer_steps"], state["loss_scale"]
    optimizer.good_steps = state["good_steps"]
    return state


def whole(place: Path, arch: Architecture) -> dict[str, torch.Tensor]:
    """All parameters of a checkpoint in one process, without moments."""
    chunks = {}
    for atom in range(arch.layers + 2):
        for spec in specs_of_atom(arch, atom, arch.layers + 2, arch.vocab):
            shape = torch.Size(spec.saved_shape)
            chunks[spec.name] = Chunk(spec.name, torch.Size([0] * len(shape)), shape, torch.empty(0))
    stored = dcp.FileSystemReader(place).read_metadata().state_dict_metadata
    for name, chunk in chunks.items():
        chunk.tensor = torch.empty(chunk.full, dtype=stored[name].properties.dtype)
    dcp.load({}, storage_reader=dcp.FileSystemReader(place), planner=_Load(list(chunks.values())), no_dist=True)
    return {name: chunk.tensor for name, chunk in chunks.items()}


def export(place: Path, arch: Architecture, config: Path, out: Path, dtype: torch.dtype) -> None:
    """Writes an ordinary Hugging Face checkpoint: `config.json` and `model.safetensors`."""
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    tensors = {n: t.to(dtype) for n, t in names.to_hf(arch, whole(place, arch)).items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(config, out / "config.json")
