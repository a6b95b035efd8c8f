"""A claim as those see it who work under it: they look whether it still holds before each write that counts.

Whoever takes a trial over removes the unfinished files of the one before. So a write that was cut short between its
look and its rename finds nothing left to rename.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paftbench.store.files import read_json

_VARIABLE = "PAFTBENCH_LEASE"


class LostClaim(Exception):
    """Another process has taken the trial over: what this one does for it no longer counts."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to write a trial's records, while the file `claim` holds `token`."""

    claim: Path
    token: str

    def held(self) -> bool:
        return read_claim(self.claim).get("token") == self.token

    def check(self) -> None:
        """`LostClaim` where it is no longer held."""
        if not self.held():
            raise LostClaim(f"another process has taken over what {self.claim} stands for")

    def setting(self, directory: Path) -> dict[str, str]:
        """What to add to the environment of the processes that run the trial in `directory`."""
        own = {"directory": str(directory), "claim": str(self.claim), "token": self.token}
        return {_VARIABLE: json.dumps(own)}


def inherited(directory: Path) -> Lease | None:
    """The lease under which this process was started to run the trial in a directory; None where it was by hand."""
    given = json.loads(os.environ.get(_VARIABLE) or "{}")
    if given.get("directory") != str(directory):
        return None
    return Lease(claim=Path(given["claim"]), token=given["token"])


def read_claim(path: Path) -> dict[str, Any]:
    """What a claim's file says; nothing where it is not there, or not written yet."""
    try:
        return read_json(path)
    except (FileNotFoundError, ValueError):
        return {}
