"""What happens to aggregated gradients in every placement: strikes, mitigations, measurement, in one fixed order."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from paftbench.faults.injector import Injector
from paftbench.mitigations.contract import Mitigation
from paftbench.mitigations.step import Step
from paftbench.ranks.axis import Traffic
from paftbench.ranks.replicas import Replicas
from paftbench.ranks.sites import GRADIENT_SITES, Site
from paftbench.step.metrics import Clock, Measured, norm, spread
from paftbench.step.nsr import Realised


class Pipeline:
    """A step is `begin`, `contributing` per rank, [aggregation], `received`, `mitigate_gradients`, [update], `updated`.

    The placement does what stands in brackets. `measuring` says whether the step's metrics are wanted: measuring reads
    only, so it never changes a trajectory. `loss_scale` gives what gradients are multiplied by until `received`.
    """

    def __init__(
        self, replicas: Replicas, injector: Injector, mitigations: Sequence[Mitigation], clock: Clock | None = None
    ) -> None:
        self.replicas = replicas
        self.injector = injector
        self.mitigations = tuple(mitigations)
        self.clock = clock or Clock()
        if Site.OPTIMIZER_STATE in injector.sites:
            replicas.require_state()
        self.states = [m.init(replicas.layout, replicas.ranks) for m in self.mitigations]
        looks = [type(m).on_contribution is not Mitigation.on_contribution for m in self.mitigations]
        self._looking = [number for number, look in enumerate(looks) if look]
        self.step = 0
        self.attempt = 0  # of the step, whose gradients were discarded as often
        self.loss_scale: Callable[[], float] = lambda: 1.0
        self.measuring = False
        self.measured = Measured()
        self._last_divergence: float | None = None
        self._realised = Realised(replicas.ranks)
        self.syncs = 0
        self.periods: list[int] = []
        self.extra_collectives = 0
        self.extra_bytes = 0

    def begin(self) -> None:
        """Open a step, or its next attempt where the last was discarded: draw its strikes."""
        self.measured, self._realised = Measured(), Realised(self.replicas.ranks)
        with self.clock.section("inject"):
            self.injector.begin(self.step, self.attempt)

    @property
    def wants_contributions(self) -> bool:
        """Whether anything strikes or looks at what ranks contribute."""
        return bool(self._looking) or Site.CONTRIBUTION in self.injector.sites

    def contributing(self, row: int, pieces: Sequence[tuple[int, Tensor]]) -> None:
        """A hosted rank's own gradient, before it is scaled by 1/W: strike it, let mitigations look."""
        if Site.CONTRIBUTION in self.injector.sites:
            before = self._copies(piece for _, piece in pieces)
            with self.clock.section("inject"):
                self.injector.strike(Site.CONTRIBUTION, row, pieces)
            if before is not None:
                with self.clock.section("measure"):
                    self._realised.contributed(pieces, before)
        for number in self._looking:
            with self.clock.section("mitigate"):
                step = Step(self.step, self.replicas, self.states[number], loss_scale=self.loss_scale())
                self.mitigations[number].on_contribution(step, row, pieces)

    def received(self) -> None:
        """The aggregated gradients are there, on every hosted rank: strike them, measure."""
        if not self.injector.covers and not self.measuring:
            return
        gradients = self.replicas.gradients
        if self.measuring:
            with self.clock.section("measure"):
                self.measured.grad_norm = norm([block for _, block in gradients])
        before = self._copies(block for _, block in gradients) if self.injector.is_due(Site.RESULT) else None
        with self.clock.section("inject"):
            if Site.RESULT in self.injector.sites:
                for row in range(len(self.replicas.ranks.local)):
                    self.injector.strike(Site.RESULT, row, [(start, block[row]) for start, block in gradients])
            self.injector.end(self.replicas.layout.outside(gradients))
        if self.measuring:
            with self.clock.section("measure"):
                self.measured.inconsistency = spread([block for _, block in gradients], self.replicas.ranks)
                self.measured.nsr = self._nsr(gradients, before)

    def mitigate_gradients(self, *, skipped: bool = False) -> None:
        """Let mitigations act on the gradients as the optimizer will read them, or not where the update is skipped."""
        self._mitigate("on_gradients", skipped=skipped)
        if self.measured.synced:
            self.measured.divergence_before = self._last_divergence

    def updated(self, *, skipped: bool = False) -> None:
        """The optimizer has decided (an update, or a skip): strike memory, measure, let mitigations act, step on."""
        self.injector.keep()
        with self.clock.section("inject"):
            for memory in self.replicas.memory(self.injector.sites):
                self.injector.strike_memory(memory)
        if self.measuring:
            with self.clock.section("measure"):
                self.measured.divergence = spread(self.replicas.parameters, self.replicas.ranks)
        self._mitigate_parameters("on_step", skipped=skipped)
        self._last_divergence = self.measured.divergence
        self.step, self.attempt = self.step + 1, 0

    def discard(self) -> None:
        """Nobody takes the gradients: the step is open again, and what struck them landed nowhere."""
        self.injector.discard()
        self.attempt += 1

    def flush(self) -> None:
        """Apply what mitigations still hold back, before detach and at the end of a trial: part of the last step."""
        self._mitigate_parameters("flush")

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "attempt": self.attempt,
            "injector": self.injector.state_dict(),
            "mitigations": [m.pending(state) for m, state in zip(self.mitigations, self.states, strict=True)],
            "syncs": self.syncs,
            "periods": self.periods,
            "extra": [self.extra_collectives, self.extra_bytes],
            "traffic": vars(self.replicas.ranks.traffic).copy(),
            "divergence": self._last_divergence,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.step, self.attempt = saved["step"], saved.get("attempt", 0)
        self.injector.load_state_dict(saved["injector"])
        self.states = [m.resume(state) for m, state in zip(self.mitigations, saved["mitigations"], strict=True)]
        self.syncs = saved["syncs"]
        self.periods = saved["periods"]
        self.extra_collectives, self.extra_bytes = saved["extra"]
        self.replicas.ranks.traffic = Traffic(**saved["traffic"])
        self._last_divergence = saved["divergence"]

    def _mitigate_parameters(self, moment: str, *, skipped: bool = False) -> None:
        """Mitigate after the update, and see what a synchronisation did to the divergence."""
        syncs = self.syncs
        self._mitigate(moment, skipped=skipped)
        if self.measuring and self.syncs > syncs:
            with self.clock.section("measure"):
                self.measured.divergence_before = self.measured.divergence
                self.measured.divergence = spread(self.replicas.parameters, self.replicas.ranks)

    def _mitigate(self, moment: str, *, skipped: bool = False) -> None:
        traffic = self.replicas.ranks.traffic
        before = (traffic.collectives, traffic.bytes)
        with self.clock.section("mitigate"):
            for mitigation, state in zip(self.mitigations, self.states, strict=True):
                step = Step(self.step, self.replicas, state, skipped=skipped)
                getattr(mitigation, moment)(step)
                self._note(step)
        self.extra_collectives += traffic.collectives - before[0]
        self.extra_bytes += traffic.bytes - before[1]

    def _note(self, step: Step) -> None:
        if step.period is not None:
            self.measured.period = step.period
        if step.decision is not None:
            self.measured.decision = step.decision
        if step.synced:
            self.measured.synced = True
            self.syncs += 1
            if step.period is not None:
                self.periods.append(step.period)

    def _copies(self, gradients: Iterable[Tensor]) -> list[Tensor] | None:
        """Gradients as they are before strikes, where the step is measured."""
        if not self.measuring:
            return None
        with self.clock.section("measure"):
            return [gradient.clone() for gradient in gradients]

    def _nsr(self, gradients: Sequence[tuple[int, Tensor]], before: Sequence[Tensor] | None) -> float:
        """The step's realised noise-to-signal ratio; 0 where no fault is on gradients."""
        if not self.injector.sites & GRADIENT_SITES:
            return 0.0
        return self._realised.ratio(gradients, before, self.measured.grad_norm or 0.0)
