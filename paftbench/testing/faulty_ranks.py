"""Ranks that train a user's model with faults and mitigations, in threads or in processes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import nn

from paftbench.attachment.checks import listed, whole
from paftbench.errors import Refused
from paftbench.faults.fault import Fault, check_faults
from paftbench.mitigations.contract import Mitigation
from paftbench.testing.errors import RankError, RanksStuck
from paftbench.testing.process_ranks import run_processes
from paftbench.testing.rank import Build, Owners, RankProgress, Task, Train, run_rank
from paftbench.testing.run import NO_STRIKE, Training
from paftbench.testing.sample import Trainings
from paftbench.testing.shipping import check_importable
from paftbench.testing.thread_ranks import run_threads

RanksAs = Literal["threads", "torchrun"]
LIMIT_S = 120.0


class FaultyRanks:
    """`world_size` ranks, each with its own replica of the model behind DistributedDataParallel.

    `ranks_as="threads"` needs no start-up and takes any function; `"torchrun"` starts real processes, for which `train`
    and `build` must be importable. No run takes longer than `limit_s` seconds.
    """

    def __init__(self, world_size: int = 4, *, ranks_as: RanksAs = "threads", limit_s: float = LIMIT_S) -> None:
        if isinstance(world_size, bool) or not isinstance(world_size, int) or world_size < 2:
            raise Refused(f"world_size (ranks that train together) must be a whole number >= 2, got {world_size!r}")
        if ranks_as not in ("threads", "torchrun"):
            raise Refused(f"ranks_as (what a rank is) must be 'threads' or 'torchrun', got {ranks_as!r}")
        if isinstance(limit_s, bool) or not limit_s > 0:
            raise Refused(f"limit_s (seconds a run may take) must be > 0, got {limit_s!r}")
        self.world_size = world_size
        self.ranks_as = ranks_as
        self.limit_s = limit_s
        self.runs: list[Training] = []
        self.failures = 0

    def run(
        self,
        train: Train,
        build: Build,
        *,
        faults: Sequence[Fault] = (),
        mitigations: Sequence[Mitigation] = (),
        seed: int = 0,
        fault_seed: int | None = None,
        accumulation: int = 1,
        exact: bool = False,
        ddp: Mapping[str, Any] | None = None,
        allow_no_strike: bool = False,
    ) -> Training:
        """Train to the end on every rank; without faults and mitigations this is the golden run of its seed.

        `build()` returns (model, optimizer), and what else `train(ddp, optimizer, ...)` takes: a GradScaler among it
        is attached too. `train` returns its curve, a list of losses or metric values, or yields them. `seed` seeds
        the global random streams: the same on every rank for `build`, another on each rank for `train`; `fault_seed`
        (default: the seed) draws the strikes. `ddp` holds options for DistributedDataParallel.

        `RankError` names the first rank that raised; `RanksStuck` says where each stands in a run that cannot end.
        """
        __tracebackhide__ = True
        _check_functions(train=train, build=build)
        task = Task(
            train=train,
            build=build,
            faults=listed("faults", faults, Fault),
            mitigations=listed("mitigations", mitigations, Mitigation),
            seed=whole("seed", seed),
            fault_seed=whole("fault_seed", seed if fault_seed is None else fault_seed),
            accumulation=whole("accumulation", accumulation),
            exact=exact,
            ddp=dict(ddp or {}),
        )
        check_faults(task.faults, self.world_size)
        outcomes = self._outcomes(task)
        run = Training(task=task, outcomes=outcomes, ranks_as=self.ranks_as, allow_no_strike=allow_no_strike)
        self.runs.append(run)
        return run

    def sample(self, train: Train, build: Build, *, seeds: int | Sequence[int] = 5, **options: Any) -> Trainings:
        """`run` once per seed, beside the golden run of that seed; `options` as in `run`."""
        __tracebackhide__ = True
        chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
        if len(set(chosen)) < 3 or len(set(chosen)) < len(chosen):
            raise Refused(f"seeds: a sample needs at least 3 different ones, got {seeds!r}")
        usual = {key: value for key, value in options.items() if key in ("accumulation", "exact", "ddp")}
        pairs = []
        for seed in chosen:
            golden = self.run(train, build, seed=seed, **usual)
            pairs.append((golden, self.run(train, build, seed=seed, **options)))
        return Trainings(pairs)

    def unproven(self) -> str | None:
        """Why what ran here proves nothing, if so: a test that ends like this must not pass."""
        if not self.runs and not self.failures:
            return "faulty_ranks was asked for, but nothing was run under it: call ranks.run(train, build, ...)"
        for number, run in enumerate(self.runs):
            if run.task.faults and run.strikes.changed == 0 and not run.allow_no_strike:
                return f"run {number}: {NO_STRIKE}\n{run.describe()}"
        return None

    def _outcomes(self, task: Task) -> list[Any]:
        """What every rank ended with, in rank order; a run that failed is counted."""
        __tracebackhide__ = True
        try:
            outcomes = self._in_threads(task) if self.ranks_as == "threads" else self._in_processes(task)
        except (RankError, RanksStuck):
            self.failures += 1
            raise
        lengths = [len(outcome.curve) for outcome in outcomes]
        if len(set(lengths)) > 1:
            raise Refused(f"train must return as many points on every rank, got {lengths} in rank order")
        return outcomes

    def _in_threads(self, task: Task) -> list[Any]:
        __tracebackhide__ = True
        progress, owners = [RankProgress() for _ in range(self.world_size)], Owners()
        return run_threads(
            self.world_size,
            lambda rank, finish: run_rank(task, rank, finish, progress[rank], owners),
            limit_s=self.limit_s,
            progress=lambda rank: str(progress[rank]),
        )

    def _in_processes(self, task: Task) -> list[Any]:
        __tracebackhide__ = True
        check_importable("train", task.train)
        check_importable("build", task.build)
        return run_processes(task, self.world_size, limit_s=self.limit_s)


def _check_functions(**functions: object) -> None:
    __tracebackhide__ = True
    for name, function in functions.items():
        if not callable(function) or isinstance(function, nn.Module):
            raise Refused(f"{name} must be a function, got a {type(function).__name__}")
