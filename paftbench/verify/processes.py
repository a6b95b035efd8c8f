"""A call in a process of its own: `python -m paftbench.verify.processes` reads it on stdin and answers on stdout."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any

import torch

from paftbench.process import die_with_parent, ending_of
from paftbench.ranks.launch import command, environment
from paftbench.testing.shipping import Parcel


class Elsewhere:
    """A call under way; `work` goes there by name, as the functions of a user's tests do, with `variables` set."""

    def __init__(self, work: Callable[[], Any], **variables: str) -> None:
        # Files, not pipes: a process that nobody listens to yet must not wait, for others may wait for it.
        self._answer, self._said = TemporaryFile(), TemporaryFile()
        with TemporaryFile() as given:
            pickle.dump(Parcel.of(work), given)
            given.seek(0)
            self._process = subprocess.Popen(
                command("paftbench.verify.processes"), env=environment(OMP_NUM_THREADS="1", **variables), stdin=given,
                stdout=self._answer, stderr=self._said,
            )  # fmt: skip

    def result(self, limit_s: float) -> Any:
        """What the call returned; `TimeoutExpired`, or `ChildProcessError` with the last line that the process said."""
        code = self._process.wait(limit_s)
        for file in (self._answer, self._said):
            file.seek(0)
        answer, said = self._answer.read(), self._said.read().decode(errors="replace")
        if code or not answer:
            raise ChildProcessError((said.strip().splitlines() or [ending_of(code)])[-1])
        return pickle.loads(answer)

    def end(self) -> None:
        """Leave neither process nor files."""
        self._process.kill()
        self._process.wait()
        self._answer.close()
        self._said.close()


def main() -> None:
    """Make the call. Stdout is kept for what it returns: what a plugin prints goes to stderr."""
    die_with_parent()
    answer = os.dup(1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    parcel: Parcel = pickle.load(sys.stdin.buffer)
    returned = parcel.open()()
    with os.fdopen(answer, "wb") as file:
        pickle.dump(returned, file)


if __name__ == "__main__":
    main()
