"""The simulator's action list: torch's schedule file format, one row per group of devices."""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import errors
from .errors import RuntimeProblem

_CELL = re.compile(r"(\d+)([FBIW])(\d+)")


@dataclass(frozen=True)
class Action:
    """`F`orward, `B`ackward, `I`nput gradient or `W`eight gradient of a micro-batch of a stage."""

    stage: int
    work: str
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.work}{self.micro_batch}"


def read(text: str, path: str) -> list[list[Action]]:
    """Rows of actions; an overlapped pair `(0F4;7B2)OVERLAP_F_B` is executed one after the other."""
    rows = []
    for number, line in enumerate(text.splitlines()):
        row = []
        for cell in line.split(","):
            found = _CELL.findall(cell)
            if cell.strip() and not found:
                raise RuntimeProblem(
                    errors.SCHEMA, path, f"row {number + 1}: `{cell}` is no action", "write it with `simulate`"
                )
            row.extend(Action(int(s), w, int(m)) for s, w, m in found)
        rows.append(row)
    return rows


def of_stage(rows: list[list[Action]], stage: int, path: str) -> list[Action]:
    """The row that holds a stage."""
    for row in rows:
        if any(action.stage == stage for action in row):
            return row
    raise RuntimeProblem(errors.SCHEMA, path, f"no row holds stage {stage}", "write it with `simulate`")
