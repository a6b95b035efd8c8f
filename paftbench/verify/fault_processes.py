"""Whether a fault model strikes the same in every process: nodes, resumed trials and colleagues have others."""

import json
import os
import subprocess
from functools import cache
from typing import Any

import torch

from paftbench.ranks.launch import command, environment
from paftbench.verify.fault_case import FaultCase
from paftbench.verify.processes import address_of
from paftbench.verify.promise import expect, promise
from paftbench.verify.twin import digest_of

LIMIT_S = 60.0


@promise()
def the_same_key_draws_the_same_strikes_in_every_process(case: FaultCase) -> None:
    cls: Any = case.cls
    own = digest_of(case)
    digests, failure = _outcome(cls, case.dtype)
    expect(not failure, "another process to strike", failure)
    got = f"{digests[case.label]}; hash() of text, id() and process ids differ there"
    expect(own == digests[case.label], f"strikes with the digest {own} in another process too", got)


@cache
def twin(cls: Any, dtype: torch.dtype) -> "subprocess.Popen[str]":
    """The other process, which strikes once for all cases; started early it costs no time."""
    task = json.dumps({**address_of(cls), "dtype": str(dtype).removeprefix("torch.")})
    hashes = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    return subprocess.Popen(
        command("paftbench.verify.twin", task), env=environment(OMP_NUM_THREADS="1", PYTHONHASHSEED=hashes),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip


@cache
def _outcome(cls: Any, dtype: torch.dtype) -> tuple[dict[str, str], str]:
    """Its digest for each case; else why there are none."""
    process = twin(cls, dtype)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {}, f"one that was not done after {LIMIT_S:g} s"
    if process.returncode or not out.strip():
        return {}, (err.strip().splitlines() or [""])[-1] or f"exit code {process.returncode}"
    return json.loads(out.splitlines()[-1]), ""
