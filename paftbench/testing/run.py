"""A finished run of all ranks: its numbers, and what a test may claim of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paftbench.building import field_values
from paftbench.errors import Refused
from paftbench.faults.fault import Fault, fault_spec
from paftbench.faults.injector import Strikes
from paftbench.mitigations.contract import Mitigation
from paftbench.testing.comparison import compared
from paftbench.testing.curve import mean_curve
from paftbench.testing.rank import Outcome, Task
from paftbench.testing.replicas import largest_difference, root_mean_square

NO_STRIKE = (
    "no strike changed a bit: this run proves nothing; raise the faults' degree, train for more steps, or say "
    "allow_no_strike=True"
)


@dataclass(frozen=True, kw_only=True)
class Training:
    """What every rank handed in, in rank order; read it, or claim something of it with the `assert_` methods."""

    task: Task
    outcomes: Sequence[Outcome]
    ranks_as: str
    allow_no_strike: bool

    @property
    def world_size(self) -> int:
        """How many ranks trained."""
        return len(self.outcomes)

    @property
    def curves(self) -> list[list[float]]:
        """Each rank's curve."""
        return [outcome.curve for outcome in self.outcomes]

    @property
    def curve(self) -> list[float]:
        """The mean over ranks, point by point; NaN where a rank's point is not finite."""
        return mean_curve(self.curves)

    @property
    def strikes(self) -> Strikes:
        """Strikes on all ranks: drawn, landed, and those that changed bits."""
        each = [outcome.strikes for outcome in self.outcomes]
        return Strikes(
            drawn=sum(strikes.drawn for strikes in each),
            landed=sum(strikes.landed for strikes in each),
            changed=sum(strikes.changed for strikes in each),
            discarded=sum(strikes.discarded for strikes in each),
        )

    @property
    def strikes_by_rank(self) -> list[Strikes]:
        """Each rank's strikes."""
        return [outcome.strikes for outcome in self.outcomes]

    @property
    def divergence(self) -> float:
        """RMS over ranks of the distance to the mean of all ranks' parameters, at the end."""
        return root_mean_square([outcome.parameters for outcome in self.outcomes])

    @property
    def steps(self) -> int:
        """Completed steps."""
        return self.outcomes[0].steps

    @property
    def syncs(self) -> int:
        """How often mitigations synchronised the replicas."""
        return self.outcomes[0].syncs

    @property
    def extra_bytes(self) -> int:
        """Payload that mitigations had each rank put into collectives."""
        return self.outcomes[0].extra_bytes

    def assert_struck(self, at_least: int = 1, *, changed: int | None = None) -> None:
        """At least so many strikes landed, on all ranks together, and `changed` of them changed bits (default: one)."""
        __tracebackhide__ = True
        if at_least < 1:
            raise Refused(f"at_least (strikes that landed) must be >= 1, got {at_least}")
        strikes, wanted = self.strikes, 1 if changed is None else changed
        if strikes.landed < at_least or strikes.changed < wanted:
            raise AssertionError(
                f"{strikes.landed} strikes landed and {strikes.changed} changed bits, but at least {at_least} and "
                f"{wanted} were to; raise the faults' degree or train for more steps\n{self.describe()}"
            )

    def assert_replicas_agree(self, *, tolerance: float = 0.0) -> None:
        """No parameter differs between two ranks by more than `tolerance`, in absolute value, after training."""
        __tracebackhide__ = True
        if not tolerance >= 0.0:
            raise Refused(f"tolerance (largest difference between two ranks) must be >= 0, got {tolerance}")
        self._require_strikes()
        largest = largest_difference([outcome.parameters for outcome in self.outcomes])
        if not largest.size <= tolerance:
            last = "ended" if self.outcomes[0].synced_last else "did not end"
            raise AssertionError(
                f"replicas disagree: {largest} > tolerance={tolerance:g}\n{self.describe()}\n"
                f"  the last step {last} with a synchronisation"
            )

    def assert_converges_like(
        self,
        golden: "Training",
        *,
        margin: float,
        window: int | None = None,
        higher_is_better: bool = False,
        allow_flat_golden: bool = False,
    ) -> None:
        """The run's curve ends no more than `margin` worse than the golden run's, on average and on the worst rank.

        Judged are means over the last `window` points (default: the last fifth). A rank is compared with the same rank
        of the golden run, which saw the same data. `margin` is in the curve's own units. A golden run that itself
        improved by no more than the margin proves nothing, and fails too, unless `allow_flat_golden`.
        """
        __tracebackhide__ = True
        self._require_golden(golden)
        self._require_strikes()
        result = compared(golden.curves, self.curves, margin=margin, window=window, higher_is_better=higher_is_better)
        if not allow_flat_golden and result.golden_is_flat:
            raise AssertionError(
                f"the golden run proves nothing: from its first point to its last {result.window} it improved by "
                f"{result.golden_gain:.4g}, no more than margin={margin:g}, so a run that learned nothing would pass; "
                f"train longer, lower the margin, or say allow_flat_golden=True\n{result.table()}"
            )
        if not result.within:
            raise AssertionError(f"{result.headline()}\n{result.table()}\n{self.describe()}")

    def describe(self) -> str:
        """The run in a few lines of plain text."""
        strikes = self.strikes
        by_rank = ", ".join(str(each.landed) for each in self.strikes_by_rank)
        return "\n".join(
            [
                f"  run: {self.world_size} ranks as {self.ranks_as}, seed {self.task.seed}, {self.steps} steps",
                f"  faults: {'; '.join(_fault(fault) for fault in self.task.faults) or 'none'}",
                f"  mitigations: {'; '.join(_plugin(mitigation) for mitigation in self.task.mitigations) or 'none'}",
                f"  strikes: {strikes.drawn} drawn, {strikes.landed} landed (by rank: {by_rank}), "
                f"{strikes.changed} changed bits",
                f"  at the end: divergence {self.divergence:.4g}, {self.syncs} synchronisations, "
                f"{self.extra_bytes} extra bytes",
            ]
        )

    def _require_strikes(self) -> None:
        __tracebackhide__ = True
        if self.task.faults and self.strikes.changed == 0 and not self.allow_no_strike:
            raise AssertionError(f"{NO_STRIKE}\n{self.describe()}")

    def _require_golden(self, golden: "Training") -> None:
        __tracebackhide__ = True
        if golden.task.faults or golden.task.mitigations:
            raise Refused("golden is no golden run: one has neither faults nor mitigations")
        if not self.task.faults and not self.task.mitigations:
            raise Refused("this run has neither faults nor mitigations: there is nothing to compare")
        for what, mine, other in (
            ("ranks", self.world_size, golden.world_size),
            ("seed", self.task.seed, golden.task.seed),
            ("accumulation", self.task.accumulation, golden.task.accumulation),
        ):
            if mine != other:
                raise Refused(f"a run is compared with the golden run of the same {what}, got {mine} and {other}")


def _fault(fault: Fault) -> str:
    spec = fault_spec(fault)
    usual = {"ranks": "all", "parameters": "*", "persistence": "transient", "schedule": "every_step"}
    kept = {key: value for key, value in spec.items() if key not in ("name", "model") and usual.get(key) != value}
    return f"{fault.model.name}({_listed(kept)})" + (f" named {fault.name!r}" if fault.name != fault.model.name else "")


def _plugin(mitigation: Mitigation) -> str:
    return f"{mitigation.name}({_listed(field_values(mitigation))})"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())
