"""Coded failures: the launcher reads them and `autohaap explain CODE` documents them."""

from __future__ import annotations

import json
import sys


class RuntimeProblem(Exception):
    """A failure with a documented code."""

    def __init__(self, code: str, path: str, message: str, hint: str = "") -> None:
        super().__init__(f"{code}: {path}: {message}")
        self.code = code
        self.path = path
        self.message = message
        self.hint = hint

    def report(self) -> None:
        """Writes one JSON line to standard error, which the launcher turns into a diagnostic."""
        record = {"code": self.code, "path": self.path, "message": self.message, "hint": self.hint}
        print("autohaap-problem " + json.dumps(record), file=sys.stderr, flush=True)


SCHEMA = "E601"
NOT_EXECUTED = "E602"
ENVIRONMENT = "E603"
WORLD = "E604"
WEIGHTS = "E606"
CHECKPOINT = "E607"
DATA = "E608"
