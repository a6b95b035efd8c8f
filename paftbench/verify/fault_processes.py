"""Whether a fault model strikes the same in every process: nodes, resumed trials and colleagues have others."""

import hashlib
import os
import subprocess
from functools import cache, partial
from typing import Any

import torch

from paftbench.bits import as_integers
from paftbench.verify.fault_case import FaultCase, fault_cases
from paftbench.verify.processes import Elsewhere
from paftbench.verify.promise import expect, promise

DIGITS = 12
LIMIT_S = 60.0


@promise()
def the_same_key_draws_the_same_strikes_in_every_process(case: FaultCase) -> None:
    cls: Any = case.cls
    own = digest_of(case)  # first, while the other process is at it
    there, failure = _outcome(cls, case.dtype)
    expect(not failure, "another process to strike", failure)
    got = f"{there[case.label]}; hash() of text, id() and process ids differ there"
    expect(own == there[case.label], f"strikes with the digest {own} in another process too", got)


@cache
def twin(cls: Any, dtype: torch.dtype) -> Elsewhere:
    """The other process, which strikes once for all cases; started early it costs no time."""
    # Another seed of text's hashes than here: a draw that hangs on one is not the same twice by luck.
    hashes = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    return Elsewhere(partial(digests, cls, dtype), PYTHONHASHSEED=hashes)


def digests(cls: Any, dtype: torch.dtype) -> dict[str, str]:
    """By case its digest, or the error that came instead."""
    found = {}
    for case in fault_cases(cls, [dtype]):
        try:
            found[case.label] = digest_of(case)
        except (Exception, SystemExit) as error:
            found[case.label] = " ".join(f"{type(error).__name__}: {error}".split())
    return found


def digest_of(case: FaultCase) -> str:
    """Of the bits of what was struck, and of its log."""
    struck = case.strike()
    digest = hashlib.sha256(as_integers(struck.after_TWN).contiguous().numpy().tobytes())
    digest.update(repr(struck.rows).encode())
    return digest.hexdigest()[:DIGITS]


@cache
def _outcome(cls: Any, dtype: torch.dtype) -> tuple[dict[str, str], str]:
    """The other process's digests; else why there are none."""
    process = twin(cls, dtype)
    try:
        return process.result(LIMIT_S), ""
    except subprocess.TimeoutExpired:
        return {}, f"one that was not done after {LIMIT_S:g} s"
    except ChildProcessError as failed:
        return {}, str(failed)
    finally:
        process.end()
