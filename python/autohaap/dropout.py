"""Dropout whose mask depends on the seed, the step, the place in the model and the sequence alone, not on the plan."""

from __future__ import annotations

import hashlib

import torch

from .parallel import SEQUENCE, TensorParallel


class Dropout:
    """Masks of a training step."""

    def __init__(self, seed: int, seq_len: int) -> None:
        self.seed = seed
        self.seq_len = seq_len
        self.step = 0

    def apply(
        self, x: torch.Tensor, share: float, site: str, rows: range, parallel: TensorParallel
    ) -> torch.Tensor:
        """Drops a share of the elements of `x` (rows x tokens of this rank x hidden) and scales the rest."""
        if share == 0.0:
            return x
        tokens = parallel.own_tokens(self.seq_len)
        masks = [self._mask(site, row, x.shape[-1], share)[tokens] for row in rows]
        mask = torch.stack(masks).to(x.device)
        assert mask.shape[SEQUENCE] == x.shape[SEQUENCE]
        return x * mask / (1.0 - share)

    def _mask(self, site: str, row: int, hidden: int, share: float) -> torch.Tensor:
        key = f"{self.seed} {self.step} {site} {row}".encode()
        seed = int.from_bytes(hashlib.sha256(key).digest()[:8], "little") >> 1
        generator = torch.Generator().manual_seed(seed)
        return torch.rand(self.seq_len, hidden, generator=generator) >= share
