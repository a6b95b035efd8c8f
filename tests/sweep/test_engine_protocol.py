"""A sweep needs of an engine what the protocol says and nothing more."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from paftbench.experiment import plan
from paftbench.experiment.file import parse_experiment
from paftbench.ranks.launch import command, environment
from paftbench.store.directory import LOG, read_result
from paftbench.sweep.engines.engine import Ending, Engine, Setting
from paftbench.sweep.sweep import Sweep


class Plain:
    """One process after the other, started as a stranger would who has read the protocol only."""

    slots = nodes = 1

    def __init__(self) -> None:
        self.running: dict[Path, subprocess.Popen[bytes]] = {}
        self.told: list[str] = []

    def expect(self, modules: Iterable[str]) -> None:
        self.told.extend(modules)

    def warm(self) -> None:
        pass

    def fits(self, processes: int) -> bool:
        return not self.running

    def start(self, directory: Path, processes: int, *, torchrun: bool, setting: Setting) -> None:
        run = command("paftbench.trial", str(directory))
        with (directory / LOG).open("ab") as log:
            self.running[directory] = subprocess.Popen(run, stdout=log, stderr=log, env=environment(**setting))

    def ended(self) -> list[tuple[Path, Ending]]:
        codes = [(directory, process.poll()) for directory, process in self.running.items()]
        ended = [(directory, code) for directory, code in codes if code is not None]
        for directory, _ in ended:
            del self.running[directory]
        return ended

    def stop(self, directories: Sequence[Path]) -> None:
        for directory in directories:
            if process := self.running.pop(directory, None):
                process.kill()
                process.wait()


def test_a_sweep_runs_on_an_engine_that_was_written_from_the_protocol_alone(tmp_path: Path) -> None:
    content = {"name": "plain", "base": {"workload": {"name": "quadratic"}, "steps": 3, "world_size": 2}}
    planned = plan(parse_experiment(content, "plain"))
    engine: Engine = Plain()
    Sweep(root=tmp_path, planned=planned, engine=engine).run()
    assert [read_result(tmp_path / item.id)["outcome"] for item in planned] == ["masked"]
