"""A fault: a fault model with a name, and where, when and whom it strikes; from YAML and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from paftbench.building import build, field_values
from paftbench.errors import Refused
from paftbench.faults.contract import FaultModel
from paftbench.faults.schedules import EVERY_STEP, Schedule, parse_schedule, schedule_spec
from paftbench.plugins import find
from paftbench.ranks.sites import BUILT_SITES, Site
from paftbench.suggest import brief, did_you_mean


@dataclass(frozen=True, kw_only=True)
class RandomRanks:
    """`count` ranks, drawn anew at every step."""

    count: int


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault model with a name, and where, when, whom and which parameters it strikes."""

    name: str
    model: FaultModel
    site: Site
    ranks: Literal["all"] | tuple[int, ...] | RandomRanks = "all"
    parameters: str | tuple[str, ...] = "*"
    persistence: Literal["transient", "permanent"] = "transient"
    schedule: Schedule = field(default=EVERY_STEP)


def check_faults(faults: Sequence[Fault], world_size: int) -> None:
    """`ValueError` for two faults of one name, which would draw the same strikes, and for ranks that do not exist."""
    names = [fault.name for fault in faults]
    for fault in faults:
        if names.count(fault.name) > 1:
            raise Refused(f"faults: the name {fault.name!r} is given twice, and names tell draws apart; set name")
        for rank in fault.ranks if isinstance(fault.ranks, tuple) else ():
            if rank >= world_size:
                raise Refused(f"fault {fault.name!r}: rank {rank} is not below world_size {world_size}")
        if isinstance(fault.ranks, RandomRanks) and fault.ranks.count > world_size:
            raise Refused(f"fault {fault.name!r}: {fault.ranks.count} random ranks of {world_size}")


_OWN_FIELDS = ("name", "model", "site", "ranks", "parameters", "persistence", "schedule")


def parse_fault(spec: Mapping[str, Any], where: str) -> Fault:
    """A fault from its YAML mapping, where the fault model's fields stand beside the fault's own."""
    if not isinstance(spec, Mapping) or "model" not in spec:
        raise Refused(f"{where}: expected a mapping with a fault model under 'model', got {brief(spec)}")
    cls = find("fault_models", spec["model"])
    own = {key: value for key, value in spec.items() if key in _OWN_FIELDS}
    values = {key: value for key, value in spec.items() if key not in _OWN_FIELDS}
    names = [*(known.name for known in fields(cls) if known.init), *_OWN_FIELDS]
    for key in values:
        if key not in names:
            raise Refused(f"{where} ({spec['model']}): unknown key {brief(key)}{did_you_mean(str(key), names)}")
    model: FaultModel = build(cls, values, f"{where} ({spec['model']})")
    return Fault(
        name=_text(own.get("name", cls.name), f"{where}.name"),
        model=model,
        site=_parse_site(own.get("site", Site.RESULT), model, where),
        ranks=_parse_ranks(own.get("ranks", "all"), where),
        parameters=_parse_patterns(own.get("parameters", "*"), where),
        persistence=_parse_persistence(own.get("persistence", "transient"), where),
        schedule=parse_schedule(own.get("schedule", "every_step"), f"{where}.schedule"),
    )


def fault_spec(fault: Fault) -> dict[str, Any]:
    """The inverse of `parse_fault`: every field resolved, ready for JSON."""
    ranks: Any = fault.ranks
    if isinstance(ranks, RandomRanks):
        ranks = {"random": ranks.count}
    patterns = fault.parameters if isinstance(fault.parameters, str) else list(fault.parameters)
    return {
        "name": fault.name,
        "model": fault.model.name,
        **field_values(fault.model),
        "site": str(fault.site),
        "ranks": list(ranks) if isinstance(ranks, tuple) else ranks,
        "parameters": patterns,
        "persistence": fault.persistence,
        "schedule": schedule_spec(fault.schedule),
    }


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise Refused(f"{where}: expected a name, got {brief(value)}")
    if not value.isprintable() or "." in value:
        raise Refused(f"{where}: a name has printable characters and no '.', got {brief(value)}")
    return value


def _parse_site(value: Any, model: FaultModel, where: str) -> Site:
    if value not in list(Site):
        raise Refused(f"{where}.site: {brief(value)} is not a site{did_you_mean(str(value), [str(s) for s in Site])}")
    site = Site(value)
    if site not in model.sites:
        legal = ", ".join(sorted(model.sites))
        raise Refused(f"{where}.site: fault model {model.name} cannot strike {value!r}; it can strike {legal}")
    if site not in BUILT_SITES:
        legal = ", ".join(sorted(BUILT_SITES))
        raise Refused(f"{where}.site: {value!r} cannot be struck yet; this version strikes {legal}")
    return site


def _parse_ranks(value: Any, where: str) -> Literal["all"] | tuple[int, ...] | RandomRanks:
    if value == "all":
        return "all"
    if isinstance(value, Mapping) and set(value) == {"random"} and _is_count(value["random"], 1):
        return RandomRanks(count=value["random"])
    listed = [value] if _is_count(value, 0) else value
    if isinstance(listed, Sequence) and not isinstance(listed, str) and listed and all(_is_count(r, 0) for r in listed):
        if len(set(listed)) != len(listed):
            raise Refused(f"{where}.ranks: a rank is listed twice, got {brief(value)}")
        return tuple(sorted(listed))
    raise Refused(f"{where}.ranks: expected all, a list of ranks or {{random: k}}, got {brief(value)}")


def _is_count(value: Any, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def _parse_patterns(value: Any, where: str) -> str | tuple[str, ...]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, Sequence) and value and all(isinstance(pattern, str) for pattern in value):
        return tuple(value)
    raise Refused(f"{where}.parameters: expected a glob or a list of globs over parameter names, got {brief(value)}")


def _parse_persistence(value: Any, where: str) -> Literal["transient", "permanent"]:
    if value == "transient" or value == "permanent":
        return value
    raise Refused(f"{where}.persistence: expected transient or permanent, got {brief(value)}")
