"""Which code produced results: a gate must not pass on those of another revision without saying so."""

from collections.abc import Mapping, Sequence
from typing import Any

from paftbench.analysis.runs import Sweep
from paftbench.records.environment import Environment
from paftbench.records.result import Result

DIRTY = " with uncommitted changes"


def revision_of(environment: Environment) -> str:
    """Version, commit where there is one, and whether the tree had changes on top."""
    git = environment.git
    return f"{environment.version('paftbench')}" + (f" {git.sha[:7]}{DIRTY if git.dirty else ''}" if git else "")


def older(results: Sequence[Result], now: Environment, command: str) -> str:
    """A warning where kept results were, or may have been, made by other code than this; empty where none was."""
    present = revision_of(now)
    others = [own for result in results if (own := revision_of(result.environment)) != present]
    if not others and not (results and DIRTY in present):
        return ""
    said = f"by paftbench {others[0]}, this is {present}" if others else f"by a tree{DIRTY}, as this is"
    count = len(others) if others else len(results)
    return f"{count} of {len(results)} results kept from before were made {said}; {command} --force runs them again"


def _processor(known: Mapping[str, Any]) -> str | None:
    """Name, and family, model and stepping, which a name alone often does not tell."""
    kind = "-".join(str(known[part]) for part in ("family", "model", "stepping") if part in known)
    return " ".join(filter(None, [known.get("name") or known.get("vendor"), kind and f"({kind})"])) or None


def environment_of(sweep: Sweep) -> dict[str, Any]:
    """Where the trials ran, in a few words, for reports."""
    known = (run.found.environment for run in sweep.selected)
    found = next((own for own in known if own.fields), Environment())
    machine = f"{str(found.platform).split(' ')[-1]} {found.cpu_capability}"
    return {
        "paftbench": revision_of(found) if found.fields else None,
        "torch": found.version("torch"),
        "Python": found.python,
        "machine": machine if found.fields else None,
        "processor": _processor(found.processor or {}),
    }
