"""Paired runs under several seeds: what one seed cannot claim."""

from collections.abc import Sequence
from typing import Any

from paftbench.testing.run import Training


class Trainings:
    """Runs beside the golden runs of the same seeds; an `assert_` holds for every seed, and names those where not."""

    def __init__(self, pairs: Sequence[tuple[Training, Training]]) -> None:
        self.goldens = [golden for golden, _ in pairs]
        self.runs = [run for _, run in pairs]

    def assert_struck(self, at_least: int = 1, *, changed: int | None = None) -> None:
        """Every run was struck; see `Training.assert_struck`."""
        __tracebackhide__ = True
        self._each("assert_struck", [(at_least,)] * len(self.runs), changed=changed)

    def assert_replicas_agree(self, *, tolerance: float = 0.0) -> None:
        """Every run's replicas agree; see `Training.assert_replicas_agree`."""
        __tracebackhide__ = True
        self._each("assert_replicas_agree", [()] * len(self.runs), tolerance=tolerance)

    def assert_converges_like_golden(self, *, margin: float, **options: Any) -> None:
        """Every run ends within `margin` of the golden run of its seed; see `Training.assert_converges_like`."""
        __tracebackhide__ = True
        self._each("assert_converges_like", [(golden,) for golden in self.goldens], margin=margin, **options)

    def _each(self, claim: str, arguments: Sequence[tuple[Any, ...]], **options: Any) -> None:
        __tracebackhide__ = True
        failures = []
        for run, given in zip(self.runs, arguments, strict=True):
            try:
                getattr(run, claim)(*given, **options)
            except AssertionError as error:
                failures.append(f"seed {run.task.seed}: {error}")
        if failures:
            raise AssertionError(f"{len(failures)} of {len(self.runs)} seeds fail\n" + "\n".join(failures))
