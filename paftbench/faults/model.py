"""What can go wrong: the fault contract, and where, when and whom a fault strikes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from paftbench.errors import Refused
from paftbench.faults.draws import Draws
from paftbench.faults.schedules import EVERY_STEP, Schedule, parse_schedule, schedule_spec
from paftbench.plugins import build, field_values, find
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout
from paftbench.ranks.sites import BUILT_SITES, Site
from paftbench.suggest import brief, did_you_mean

FLOATS = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})


@dataclass(frozen=True, kw_only=True)
class FaultModel:
    """What changes: subclass `SparseFault` or `DenseFault`; fields are the swept parameters.

    A model that makes sense on gradients only, or on memory only, says so in `sites`. At `optimizer_state` each kind of
    state is struck, and has a state of the model, of its own. One that draws nothing, so that it does the same under
    any seed, says `deterministic`.
    """

    plugin_kind: ClassVar[str] = "fault_models"
    name: ClassVar[str]
    units: ClassVar[Mapping[str, tuple[float, float]]]
    sites: ClassVar[frozenset[Site]] = frozenset(Site)
    dtypes: ClassVar[frozenset[torch.dtype]] = FLOATS
    needs: ClassVar[Literal["value", "row", "contributions"]] = "value"
    deterministic: ClassVar[bool] = False

    degree: float = 0.0
    unit: str = ""

    def __post_init__(self) -> None:
        if self.unit not in self.units:
            raise Refused(f"unit {self.unit!r} is not one of {self.name}{did_you_mean(self.unit, self.units)}")
        low, high = self.units[self.unit]
        if not (isfinite(self.degree) and low <= self.degree <= high):
            raise Refused(f"degree ({self.unit}) must be within [{low:g}, {high:g}], got {self.degree!r}")

    def check(self, dtype: torch.dtype) -> None:
        """`ValueError` where the fields do not fit numbers of this type."""

    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Tensor]:
        """State of the fault, one leading row per hosted rank; checkpointed by the injector."""
        return {}

    def expected(self, size: int, step: int, dtype: torch.dtype) -> float:
        """Strikes expected on one rank at a step that the schedule chose, among `size` elements.

        Forecasts of long trials look at some steps only, and take it for constant between two on which it agrees.
        """
        return float(size) if self.degree > 0 else 0.0


class SparseFault(FaultModel):
    """A fault that strikes few elements: its cost is O(strikes), never a mask."""

    def rate(self, dtype: torch.dtype) -> float:
        """Probability that one element is struck."""
        return self.degree

    def count(self, n: int, draws: Draws) -> int:
        """Strikes among `n` elements."""
        return int(draws.generator.binomial(n, self.rate(draws.dtype)))

    def change(self, value_K: Tensor, draws: Draws) -> Tensor:
        """The struck values; `value_K` itself stays as it is."""
        raise TypeError(f"fault model {self.name} does not define change()")

    def expected(self, size: int, step: int, dtype: torch.dtype) -> float:
        return size * self.rate(dtype)


class DenseFault(FaultModel):
    """A fault that strikes every element of the parameters it covers, or a range of them.

    A model that puts the squared L2 norms of its change, part by part, into `draws.squares` says `reports_norm`; for
    others the injector measures them on a copy. Parts make the logged norm independent of how buckets cut. A model that
    strikes a range of a slice, or nothing of it, says how many elements in `draws.struck`. `paftbench.sums` are sums
    that do not hang on where the slice lies.
    """

    reports_norm: ClassVar[bool] = False

    def events(self, n: int, draws: Draws) -> int:
        """Strikes drawn among `n` elements at this (step, rank): each element, or 1 for a fault that is one event."""
        return n if self.degree > 0 else 0

    def observe(self, grad_N: Tensor, start: int, state: dict[str, Tensor], draws: Draws) -> None:
        """See the slice that starts at flat index `start` before it is struck, at every step, scheduled or not.

        A slice is one or more whole parameters, neighbours in the flat index space; `draws.parts` lists them.
        """

    def change(self, grad_N: Tensor, start: int, state: dict[str, Tensor], draws: Draws) -> int:
        """Strike the slice in place; how many elements really changed."""
        raise TypeError(f"fault model {self.name} does not define change()")


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
    names = [*field_values_of(cls), *_OWN_FIELDS]
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


def field_values_of(cls: type[FaultModel]) -> list[str]:
    """Names of the fields that a fault model may be given."""
    return [known.name for known in fields(cls) if known.init]


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
