"""Which machine a result comes from: between two records of one machine a trial promises the same bits."""

from collections.abc import Mapping
from typing import Any, Final

PARTS: Final = (
    "system", "machine", "device", "gpus", "processor", "switches", "threads", "versions", "cpu_capability",
    "libraries", "bits",
)  # fmt: skip
_VERSIONS: Final = ("torch", "torchvision", "transformers", "numpy")
# Where threads run and how they wait; how many they are is recorded as `threads`.
_NO_OTHER_BITS: Final = frozenset(
    {"OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OMP_WAIT_POLICY", "KMP_AFFINITY", "KMP_BLOCKTIME",
     "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT"}
)  # fmt: skip
_SHOWN: Final = 5


def machine(environment: Mapping[str, Any], device: str | None) -> dict[str, Any]:
    """The parts of a record's environment on which bits hang; None for what an older record does not have."""
    platform = str(environment.get("platform") or "").split()
    versions, switches = _mapping(environment, "versions"), _mapping(environment, "switches")
    return {
        "system": platform[0] if platform else None,
        "machine": platform[-1] if platform else None,
        "device": device,
        "gpus": [environment.get("cuda"), *(environment.get("gpus") or [])] if device == "cuda" else [],
        "versions": None if versions is None else {name: versions.get(name) for name in _VERSIONS},
        "switches": None if switches is None else {k: v for k, v in switches.items() if k not in _NO_OTHER_BITS},
        **{name: environment.get(name) for name in ("threads", "processor", "cpu_capability", "libraries", "bits")},
    }


def _mapping(environment: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    value = environment.get(name)
    return value if isinstance(value, Mapping) else None


def differs(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The parts of two machines that are not known to be the same, `part` or `part.key`; none for one machine.

    What either has not recorded is not known.
    """
    names = []
    for part in PARTS:
        old, new = then.get(part), now.get(part)
        if old is None or new is None:
            names.append(part)
        elif isinstance(old, Mapping) and isinstance(new, Mapping):
            names += [f"{part}.{key}" for key in {**old, **new} if old.get(key) != new.get(key)]
        elif old != new:
            names.append(part)
    return names


def difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`differs` in words, the first few with their values; empty for one machine."""
    names = differs(then, now)
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return ", ".join([_said(name, then, now) for name in names[:_SHOWN]] + more)


def _said(name: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    part, _, key = name.partition(".")
    for record, says in ((then, "was not recorded"), (now, "is not recorded")):
        if record.get(part) is None:
            return f"{part} {says}"
    if not key:
        return f"{name} {now[part]}, was {then[part]}"
    return f"{name} {now[part].get(key, 'not set')}, was {then[part].get(key, 'not set')}"
