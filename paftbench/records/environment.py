"""What a result says of what produced it; `paftbench.environment.record` finds it out."""

from dataclasses import dataclass
from typing import Any

from paftbench.records.door import parse
from paftbench.records.kinds import AnyText, Count, Flag, Open, Text


@dataclass(frozen=True, kw_only=True)
class Git:
    """The commit, and whether the tree had changes on top."""

    sha: Text
    dirty: Flag | None = None


@dataclass(frozen=True, kw_only=True)
class Environment(Open):
    """Versions, source revision, processor and what computes on it; None for what an older record does not have."""

    versions: dict[Text, Text | None] | None = None
    python: Text | None = None
    platform: Text | None = None
    processor: dict[Text, AnyText] | None = None
    cpu_capability: Text | None = None
    libraries: dict[Text, AnyText] | None = None
    bits: dict[Text, AnyText] | None = None
    switches: dict[Text, AnyText] | None = None
    cpus: Count | None = None
    threads: Count | None = None
    cuda: Any = None
    gpus: tuple[Text, ...] = ()
    git: Git | None = None
    argv: tuple[AnyText, ...] = ()

    def version(self, package: str) -> str | None:
        return (self.versions or {}).get(package)

    @property
    def processor_name(self) -> str | None:
        return (self.processor or {}).get("name")


def present() -> Environment:
    """That of this process."""
    from paftbench.environment.record import environment

    return parse(Environment, environment(), "the environment")
