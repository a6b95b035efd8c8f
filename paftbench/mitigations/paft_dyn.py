"""PAFT-Dyn: averaging whose period follows the drift that each synchronisation shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite, isnan, nan, sqrt
from typing import Any, Literal

import numpy as np
from torch import Tensor

from paftbench import theory
from paftbench.errors import Refused
from paftbench.mitigations.averaging import Averaging
from paftbench.mitigations.drift_profile import DriftProfile, norms_of, profile
from paftbench.mitigations.response import GroupResponse, Response, responses
from paftbench.mitigations.step import Decision, Step
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout


@dataclass(frozen=True, kw_only=True)
class PaftDyn(Averaging):
    """Average the replicas, and choose from how far they had drifted after how many steps they are averaged next.

    Source: "Capturing and Mitigating Gradient Aggregation Errors for Fault-Tolerant Distributed Training" (ICLR 2025
    submission 10612), Algorithm 2. `rule`, each clamped to [`period_min`, `period_max`] and the same on all ranks:

    `paper`, Algorithm 2 as printed: floor(||g|| / ||mean - own||) over the whole model, the smallest of all ranks.
    `paper_layer`, what the paper calls its practice: the same of one tensor, where the rank has drifted most.
    `code`, that of the paper's research code: at rank 0's weight tensor with the largest RMS distance D to the mean,
    floor(RMS(g) / (D / period)).
    `consensus`, paftbench's own: the noise's std is estimated from the drift of all ranks since the last
    synchronisation, and the period is the longest after which they are expected to have drifted (RMS) by no more than
    `budget` times the RMS of the gradient without that noise. It grows as the learning rate falls. Parameter groups
    drift each at its own rate; the noise is taken to be the same in all of them.

    `gradient` says which g the first three take: `local`, a rank's own before aggregation (Algorithm 2, and the code at
    the time of the paper), or `received` (the code since 2025), whose own noise keeps the period from falling.

    The next synchronisation is `period` steps after the step in which the means were loaded. With `modulo` it is, as in
    the research code, the next step that the period divides. A step whose update was skipped adds no drift, and a
    synchronisation that falls on it leaves the period as it is: its gradients say nothing.
    """

    name = "paft_dyn"
    rule: Literal["paper", "paper_layer", "code", "consensus"] = "code"
    period: int = 10
    period_min: int = 2
    period_max: int = 10
    gradient: Literal["local", "received"] = "local"
    budget: float = 1.5
    modulo: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.period_min <= self.period_max:
            raise Refused(
                "period_min and period_max (bounds of the chosen period, in steps) must be 1 <= period_min <= "
                f"period_max, got {self.period_min} and {self.period_max}"
            )
        if self.period < 1:
            raise Refused(f"period (steps to the first synchronisation) must be >= 1, got {self.period}")
        if not (isfinite(self.budget) and self.budget > 0):
            raise Refused(f"budget (drift, in RMS gradients) must be a finite number > 0, got {self.budget!r}")

    @property
    def steps_per_sync(self) -> float:
        return self.period

    def init(self, layout: Layout, ranks: Ranks) -> dict[str, Any]:
        first = {"period": self.period, "next": self.period - 1}
        return {**super().init(layout, ranks), **first, "drift": [], "local": {}}

    def on_contribution(self, step: Step, row: int, pieces: Sequence[tuple[int, Tensor]]) -> None:
        wanted = step.state["pending"] is not None if self.overlap else self.due(step)
        if not wanted or self.gradient != "local" or self.rule == "consensus":
            return
        for name, (norm,) in norms_of(step.layout, [(start, grad_n[None]) for start, grad_n in pieces]).items():
            step.state["local"].setdefault(name, [0.0] * len(step.ranks.local))[row] = norm / step.loss_scale

    def on_step(self, step: Step) -> None:
        groups = None if step.skipped else self._responses(step)
        # What noise of variance 1 would have drifted by now, under the learning rates there really were: the measured
        # drift divided by it is the noise's own variance.
        for group in groups or []:
            drift = _drift_of(step, group)
            drift[:] = _flat(_after(group.response, _square(drift)))
        step.period = step.state["period"]
        super().on_step(step)

    def due(self, step: Step) -> bool:
        if self.modulo:
            return (step.index + 1) % int(step.state["period"]) == 0
        return step.index == step.state["next"]

    def arrived(self, step: Step, means: Sequence[Tensor]) -> None:
        """Choose the next period from what the synchronisation shows, and log why."""
        state = step.state
        local, state["local"] = state["local"] or None, {}
        if step.skipped:
            step.period = state["period"]
            state["next"] = step.index + step.period
            return
        seen = profile(step, means, local=local)
        groups = self._responses(step)
        variance = sum(group.share * _drift_of(step, group)[0] for group in groups or [])
        sigma = nan
        if variance > 0 and step.ranks.world_size > 1:
            sigma = theory.noise_std(seen.rms(seen.scaled), variance, ranks=step.ranks.world_size)
        chosen, used = self._chosen(step, seen, groups, sigma)
        step.decision = Decision(
            rule=self.rule, sigma=sigma if isfinite(sigma) else None, lr=step.lr,
            period_before=state["period"], period=chosen, **used,
        )  # fmt: skip
        state["period"] = step.period = chosen
        state["next"] = step.index + chosen

    def receive(self, step: Step, means: list[Tensor]) -> None:
        super().receive(step, means)
        step.period = step.state["period"]
        for drift in step.state["drift"]:
            drift[:] = _flat(theory.synchronised(_square(drift), self.state))

    def _chosen(
        self, step: Step, seen: DriftProfile, groups: list[GroupResponse] | None, sigma: float
    ) -> tuple[int, dict[str, Any]]:
        """The period, and the numbers it came from."""
        bounds = self.period_min, self.period_max
        if self.rule == "code":
            layer, before = seen.layers[0], step.state["period"]
            period = code_period(layer.gradient, layer.spread, before, *bounds)
            return period, {"layer": layer.name, "gradient": layer.gradient, "spread": layer.spread}
        if self.rule == "paper":
            pairs = zip(seen.gradients, seen.spreads, strict=True)
            found = [(_clamped(_ratio(g, d), *bounds), g, d) for g, d in pairs]
            period, gradient, spread = min(found)
            return period, {"layer": None, "gradient": gradient, "spread": spread}
        if self.rule == "paper_layer":
            ratios = [_clamped(_ratio(own.gradient, own.spread), *bounds) for own in seen.layers]
            period = min(ratios)
            own = seen.layers[ratios.index(period)]
            return period, {"layer": own.name, "gradient": own.gradient, "spread": own.spread}
        assert groups is not None
        # The received gradient holds the noise: its mean square is the sum of the signal's and the noise's.
        gradient = sqrt(max(0.0, seen.rms(seen.received) ** 2 - sigma**2)) if isfinite(sigma) else 0.0
        used = {"layer": None, "gradient": gradient, "spread": seen.rms(seen.scaled)}
        return self._longest(step, groups, sigma, gradient), used

    def _longest(self, step: Step, groups: list[GroupResponse], sigma: float, gradient: float) -> int:
        """The longest period whose expected drift is within the budget, at today's learning rates."""
        if not isfinite(sigma):
            # No drift at all, or the replicas are lost: nothing to gain by averaging, or everything.
            still = not any(_drift_of(step, group)[0] for group in groups)
            return self.period_max if still else self.period_min
        # From where replicas stand after this synchronisation, one update at a time, until the budget is spent.
        moments = [theory.synchronised(_square(_drift_of(step, group)), self.state) for group in groups]
        factor = theory.consensus_factor(step.ranks.world_size)
        longest = self.period_min
        if self.overlap and not self.modulo:
            # The update of the loading step comes before the period's first.
            moments = _all_after(groups, moments)
        for period in range(1, self.period_max + 1):
            moments = _all_after(groups, moments)
            variance = sum(group.share * float(each[0, 0]) for group, each in zip(groups, moments, strict=True))
            if sigma * sqrt(variance * factor) > self.budget * gradient:
                break
            longest = max(longest, period)
        return longest

    def _responses(self, step: Step) -> list[GroupResponse] | None:
        """None for an optimizer that is not known, with which rule `consensus` refuses to start."""
        try:
            return responses(step.replicas)
        except ValueError as unknown:
            if self.rule == "consensus":
                raise Refused(f"paft_dyn, rule consensus: {unknown}") from None
            return None


def code_period(gradient: float, spread: float, before: int, lowest: int, highest: int) -> int:
    """Rule `code`: floor(gradient / (spread / before)), clamped; all of one layer, RMS."""
    return _clamped(_ratio(gradient, spread / before), lowest, highest)


def _ratio(gradient: float, spread: float) -> float:
    """Not a number where replicas or gradients are not finite."""
    if not (isfinite(gradient) and isfinite(spread)):
        return nan
    return gradient / spread if spread else inf


def _clamped(period: float, lowest: int, highest: int) -> int:
    """Within the bounds; the shortest where there is no number."""
    return lowest if isnan(period) else max(lowest, floor(min(period, float(highest))))


def _after(response: Response, moments: theory.Floats) -> theory.Floats:
    return theory.updated(
        moments, response.rate, momentum=response.momentum, weight_decay=response.weight_decay, gain=response.gain
    )


def _all_after(groups: Sequence[GroupResponse], moments: Sequence[theory.Floats]) -> list[theory.Floats]:
    return [_after(group.response, each) for group, each in zip(groups, moments, strict=True)]


def _drift_of(step: Step, group: GroupResponse) -> list[float]:
    """A parameter group's second moments, live; 0 for a group that has only now been added."""
    drift: list[list[float]] = step.state["drift"]
    drift.extend([0.0] * 4 for _ in range(group.number + 1 - len(drift)))
    return drift[group.number]


def _square(values: Sequence[float]) -> theory.Floats:
    return np.array(values, dtype=np.float64).reshape(2, 2)


def _flat(moments: theory.Floats) -> list[float]:
    return [float(value) for value in moments.ravel()]
