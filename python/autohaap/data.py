"""Token files: memory-mapped, in an order that depends on the seed alone, resumable from the step.

    python -m autohaap.data TEXT... -o tokens.bin [--tokenizer tokenizer.json | --train VOCAB]

`tokens.bin` holds little-endian integers; `tokens.json` beside it their width, their number and the vocabulary.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from . import errors
from .errors import RuntimeProblem
from .executor import Batch

BYTES = 256


class Tokens:
    """Sequences of a token file; sequence i of epoch e is the same under every plan."""

    def __init__(self, path: Path, seq_len: int, vocab: int, seed: int) -> None:
        try:
            facts = json.loads(path.with_suffix(".json").read_text())
            self.tokens = np.memmap(path, dtype=facts["dtype"], mode="r")
            largest = facts["vocab"]
        except (OSError, ValueError, KeyError) as error:
            raise RuntimeProblem(
                errors.DATA, str(path), f"cannot read the tokens: {error}",
                "`python -m autohaap.data TEXT... -o tokens.bin` writes them",
            ) from error
        if largest > vocab:
            raise RuntimeProblem(
                errors.DATA, str(path), f"the tokens go up to {largest}, the model's vocabulary is {vocab}"
            )
        self.seq_len, self.seed = seq_len, seed
        self.num_sequences = (len(self.tokens) - 1) // seq_len
        if self.num_sequences < 1:
            raise RuntimeProblem(errors.DATA, str(path), f"fewer than {seq_len + 1} tokens")
        self._epoch = -1
        self._order = np.zeros(0, dtype=np.int64)

    def sequence(self, index: int) -> np.ndarray:
        """The sequence at a position of the endless stream, one token longer than it is."""
        epoch, at = divmod(index, self.num_sequences)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.num_sequences)
            self._epoch = epoch
        start = int(self._order[at]) * self.seq_len
        return np.asarray(self.tokens[start : start + self.seq_len + 1], dtype=np.int64)

    def batch(self, step: int, global_batch: int) -> Batch:
        """The global batch of a step; rows are read when asked for."""
        rows = Rows(self, step * global_batch, 0), Rows(self, step * global_batch, 1)
        return Batch(rows[0], rows[1], global_batch * self.seq_len)


class Rows:
    """Inputs (shift 0) or labels (shift 1) of the sequences from `first` on."""

    def __init__(self, tokens: Tokens, first: int, shift: int) -> None:
        self.tokens, self.first, self.shift = tokens, first, shift

    def __getitem__(self, rows: slice) -> torch.Tensor:
        found = [self.tokens.sequence(self.first + row) for row in range(rows.start, rows.stop)]
        end = self.tokens.seq_len + self.shift
        return torch.from_numpy(np.stack(found)[:, self.shift : end].copy())


def write(texts: list[str], out: Path, tokenizer: Path | None, train: int | None) -> int:
    """Tokenizes texts into a token file; bytes without a tokenizer. Returns the number of tokens."""
    if tokenizer is None and train is None:
        tokens = np.frombuffer("\n".join(texts).encode(), dtype=np.uint8).astype(np.uint16)
        vocab = BYTES
    else:
        from tokenizers import ByteLevelBPETokenizer, Tokenizer

        if tokenizer is not None:
            library = Tokenizer.from_file(str(tokenizer))
        else:
            made = ByteLevelBPETokenizer()
            made.train_from_iterator(texts, vocab_size=train, show_progress=False)
            made.save(str(out.with_name("tokenizer.json")))
            library = made
        ids = [i for text in texts for i in library.encode(text).ids]
        vocab = library.get_vocab_size()
        tokens = np.asarray(ids, dtype=np.uint16 if vocab <= 65536 else np.uint32)
    tokens.tofile(out)
    out.with_suffix(".json").write_text(
        json.dumps({"dtype": str(tokens.dtype), "tokens": len(tokens), "vocab": vocab})
    )
    return len(tokens)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m autohaap.data", description="tokenize text files")
    parser.add_argument("text", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--tokenizer", type=Path, help="tokenizer.json of a model")
    kind.add_argument("--train", type=int, metavar="VOCAB", help="train a byte-level BPE of this size")
    args = parser.parse_args()
    texts = [path.read_text(errors="replace") for path in args.text]
    print(f"{write(texts, args.out, args.tokenizer, args.train)} tokens")


if __name__ == "__main__":
    main()
