"""Another process in which a fault model strikes: `python -m paftbench.verify.twin TASK`, TASK being JSON.

Its last line on stdout is the digest of the strikes in each case, as JSON.
"""

import hashlib
import json
import sys
from contextlib import redirect_stdout

import torch

from paftbench.bits import as_integers
from paftbench.process import die_with_parent
from paftbench.verify.fault_case import FaultCase, fault_cases
from paftbench.verify.processes import class_at

DIGITS = 12


def digest_of(case: FaultCase) -> str:
    """Of the bits of what was struck, and of its log."""
    struck = case.strike()
    digest = hashlib.sha256(as_integers(struck.after_TWN).contiguous().numpy().tobytes())
    digest.update(repr(struck.rows).encode())
    return digest.hexdigest()[:DIGITS]


def main() -> None:
    """The command line: one argument, the class and the dtype."""
    die_with_parent()
    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    with redirect_stdout(sys.stderr):
        cases = fault_cases(class_at(task), [getattr(torch, task["dtype"])])
        found = {case.label: _outcome(case) for case in cases}
    print("\n" + json.dumps(found))


def _outcome(case: FaultCase) -> str:
    """The digest, or the error that came instead."""
    try:
        return digest_of(case)
    except (Exception, SystemExit) as error:
        return " ".join(f"{type(error).__name__}: {error}".split())


if __name__ == "__main__":
    main()
