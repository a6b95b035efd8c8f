"""Which of many is tried this time: another at each commit, the same for everybody who has it."""

import random
from collections.abc import Sequence
from typing import TypeVar

from paftbench.environment.record import environment

T = TypeVar("T")


def one_of(name: str, choices: Sequence[T]) -> T:
    """Never by the date: what fails must fail again tomorrow. Outside a clone it is always the same one."""
    commit = (environment()["git"] or {}).get("sha", "")
    return random.Random(f"{name} {commit}").choice(choices)
