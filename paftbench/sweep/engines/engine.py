"""What a sweep asks of whatever runs its trials: this machine, a queue of jobs, several machines."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

SERVER_LOST: Final = "server lost"  # the trial ended with what had started it: its exit code is lost

Ending = int | Literal["server lost"]
Setting = Mapping[str, str]


class Engine(Protocol):
    """Places trials, tells which have ended, stops them; it knows nothing of faults, metrics and results.

    A trial is a directory that every machine of the engine sees under the same path. Its `trial.json` is there before
    it starts. `python -m paftbench.trial DIRECTORY` runs it, in `processes` processes under torchrun or in a single
    one, and what they print belongs at the end of `log.txt` there; all else in the directory is the trial's and the
    sweep's. Claims, golden runs, time-outs and verdicts are the sweep's: it polls, every few hundredths of a second
    and from one thread, so no method but `stop` may wait for a trial.

    `slots` is how many processes run at a time, for forecasts; `nodes` how many machines one trial may have. What the
    engine cannot do it refuses when it is made, with `Refused` or `Missing`.
    """

    slots: int
    nodes: int

    def expect(self, modules: Iterable[str]) -> None:
        """Modules that trials to come will import; a hint, given before `warm`, perhaps several times."""

    def warm(self) -> None:
        """Trials of one process come soon: do now what makes each start faster, or nothing."""

    def fits(self, processes: int) -> bool:
        """Whether a trial of so many processes would start at once; a queue of others' jobs may always say yes.

        A trial of more processes than `slots` fits where nothing runs.
        """

    def start(self, directory: Path, processes: int, *, torchrun: bool, setting: Setting) -> None:
        """Start the trial of a directory; `setting` is added to the environment of its processes.

        `OSError` where it cannot be started.
        """

    def ended(self) -> list[tuple[Path, Ending]]:
        """Trials that have ended since the last call, by themselves and not by `stop`, each told once.

        With the exit code, or minus the signal that ended it; `SERVER_LOST` where the engine cannot know it because
        what ran the trial is gone: that is never taken for a crash of the training.
        """

    def stop(self, directories: Sequence[Path]) -> None:
        """End trials, and return when none of their processes is left; those that have ended or never ran count so.

        SIGTERM, and after a while SIGKILL.
        """
