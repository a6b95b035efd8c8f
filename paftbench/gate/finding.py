"""What `check` found of one promise, and what all findings together mean."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Verdict = Literal["pass", "fail", "inconclusive"]
VERDICTS: Final[tuple[Verdict, ...]] = ("fail", "inconclusive", "pass")  # the first that any finding has wins
EXIT: Final[Mapping[Verdict, int]] = {"pass": 0, "fail": 1, "inconclusive": 3}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One promise about one subject: a cell, or a trial that ended in error.

    `number` is the mean over `seeds`, `low` and `high` their range or interval, `spread` which of them: `range`, `95 %
    paired t`, of a rate `95 % Wilson`, or empty. `bound` is the text of what was promised. `reason` says in a sentence
    why it is not a pass, or what a reader of a pass should know.
    `source` is where the promise stands: `expect[2]`, `baseline`, or `trial` for one that ended in error.
    """

    subject: str
    value: str
    verdict: Verdict
    source: str
    grid: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)
    number: float | None = None
    low: float | None = None
    high: float | None = None
    spread: str = ""
    bound: str = ""
    seeds: int = 0
    reason: str = ""
    is_error: bool = False


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """Fail wins over inconclusive, which wins over pass; nothing found is inconclusive."""
    found = {finding.verdict for finding in findings} or {"inconclusive"}
    return next(verdict for verdict in VERDICTS if verdict in found)


def counts_of(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """How many findings have each verdict."""
    listed = [finding.verdict for finding in findings]
    return {verdict: listed.count(verdict) for verdict in VERDICTS}


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One pass of `check`: what was asked, by which command, and what was found.

    `environment` is where the trials ran: torch, Python, platform, commit; `baseline` is its file's name.
    """

    experiment: str
    command: str
    findings: tuple[Finding, ...]
    trials: int
    mode: str = "expect"
    baseline: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.findings)

    @property
    def exit_code(self) -> int:
        return EXIT[self.verdict]

    @property
    def summary(self) -> str:
        """`ci/quick: pass (12 pass)`."""
        counts = ", ".join(f"{count} {verdict}" for verdict, count in counts_of(self.findings).items() if count)
        return f"{self.experiment}: {self.verdict} ({counts or 'nothing was judged'})"
