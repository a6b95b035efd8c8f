"""What a plan says beforehand: strikes in closed form, huge experiments in seconds, mitigations of any shape."""

import io
import resource
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support import mutated_experiments
from support.plugin_files import plugins_kept

from paftbench.cli.main import exit_code
from paftbench.experiment import plan
from paftbench.experiment.file import parse_experiment
from paftbench.experiment.forecast import warnings_of
from paftbench.experiment.strikes import ExpectedStrikes, expected_strikes, strikes_of
from paftbench.plugins import load_file
from paftbench.store.directory import Planned

DIM = 10
WITH = "name: x\nbase: {{workload: {{name: quadratic, dim: 10}}, {}}}\n"
HUGE = 10_000_000_000_000


@pytest.fixture(autouse=True)
def registered(tmp_path: Path) -> Iterator[None]:
    """A fault model that fades, and a mitigation with a `period` of any kind."""
    (tmp_path / "others.py").write_text(mutated_experiments.PLUGINS)
    with plugins_kept():
        load_file(tmp_path / "others.py")
        yield


def planned(steps: int, **base: Any) -> list[Planned]:
    fields = {"workload": {"name": "quadratic", "dim": DIM}, "steps": steps, "world_size": 2, **base}
    return plan(parse_experiment({"name": "x", "base": fields, "golden": False}, "x.yaml"))


def struck(steps: int, **fault: Any) -> ExpectedStrikes:
    (item,) = planned(steps, faults=[{"model": "stale_shard", "degree": 0.5, **fault}])
    return strikes_of(item.trial)


@pytest.mark.parametrize("delay", [1, 3, 1023, 1024, 1025, 5000, 123_456_789])
@pytest.mark.parametrize("steps", [1, 2, 1024, 1025, 6000, HUGE])
def test_a_fault_that_starts_late_is_counted_from_its_first_step_on(delay: int, steps: int) -> None:
    assert struck(steps, delay=delay) == ExpectedStrikes(2.0 * max(0, steps - delay), True)


def test_a_late_start_and_a_schedule_are_counted_together() -> None:
    window = {"kind": "window", "start": 0, "stop": 10_000}
    assert struck(HUGE, delay=4000, schedule=window).count == 2 * 6000
    listed = {"kind": "steps", "steps": [3, 4000, 4001, 9_000_000]}
    assert struck(HUGE, delay=4001, schedule=listed).count == 2 * 2


@pytest.mark.parametrize(("steps", "exact"), [(50, True), (1024, True), (100_000, False)])
def test_a_fault_that_fades_is_summed_and_beyond_what_is_looked_at_said_to_be_an_estimate(
    steps: int, exact: bool
) -> None:
    found = struck(steps, model="fading", fade=100, name="f")
    walked = sum(2 * DIM * 0.5 * 100 / (100 + step) for step in range(steps))
    assert found.exact is exact and found.count == pytest.approx(walked, rel=1e-9 if exact else 0.1)
    text = WITH.format(f"steps: {steps}, faults: [{{model: fading, degree: 0.5}}]")
    assert ("~" in listing(text)) is not exact


def listing(text: str) -> str:
    """What `run -n` prints of a file."""
    out = io.StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(out):
        path = Path(folder) / "x.yaml"
        path.write_text(text)
        assert exit_code(["run", str(path), "-n", "--out", folder]) == 0
    return out.getvalue()


BROKEN = """
from dataclasses import dataclass
from paftbench.faults import SparseFault

@dataclass(frozen=True, kw_only=True)
class Broken(SparseFault):
    "Cannot say what it expects."
    name = "broken_forecast"
    units = {"per_element": (0.0, 1.0)}
    unit: str = "per_element"
    def expected(self, size, step, dtype):
        return {RESULT}
"""


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("1 / 0", "fault 'f': broken_forecast.expected() raised ZeroDivisionError: division by zero"),
        ("float('nan')", "fault 'f': broken_forecast.expected() must be a finite number >= 0, got nan"),
        ("None", "fault 'f': broken_forecast.expected() raised TypeError: "),
    ],
)
def test_a_fault_model_that_cannot_say_what_it_expects_is_named(result: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN.replace("{RESULT}", result))
    load_file(tmp_path / "broken.py")
    (item,) = planned(5, faults=[{"name": "f", "model": "broken_forecast", "degree": 0.5}])
    with pytest.raises(ValueError) as caught:
        expected_strikes(item.trial)
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("period", ["", ", period: null", ", period: 0", ", period: often", ", period: 1000"])
def test_a_mitigation_is_planned_whatever_its_field_period_means(period: str) -> None:
    assert "all/s0" in listing(WITH.format(f"steps: 5, mitigations: [{{name: now_and_then{period}}}]"))


def test_a_plugin_whose_fields_can_change_is_refused_where_it_is_given_one() -> None:
    with pytest.raises(ValueError, match=r"mitigations\[0\] \(now_and_then\)\.options: .* can change; a tuple cannot"):
        planned(5, mitigations=[{"name": "now_and_then", "options": {"a": 1}}])
    with pytest.raises(ValueError, match=r"\.weights: expected a finite number, got \[inf\]"):
        planned(5, mitigations=[{"name": "now_and_then", "weights": [float("inf")]}])


SET_FIELD = """
from dataclasses import dataclass
from paftbench.mitigations import Mitigation

@dataclass(frozen=True, kw_only=True)
class WithSet(Mitigation):
    "Keeps a set: `kept`."
    name = "with_set"
    kept: frozenset[int] = frozenset({1})
"""


def test_a_default_that_json_has_not_is_listed_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sets.py").write_text(SET_FIELD)
    assert exit_code(["ls", "mitigations", "with_set", "--json", "--plugin", str(tmp_path / "sets.py")]) == 0
    assert "frozenset({1})" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["paft_sync", "paft_dyn"])
def test_a_mitigation_that_says_its_steps_per_sync_is_warned_about_where_a_trial_is_shorter(name: str) -> None:
    def lines(period: int) -> list[str]:
        return warnings_of(planned(9, mitigations=[{"name": name, "period": period}]))

    assert lines(9) == [] and lines(10) == [f"all: {name}: period 10 is more than the trial's 9 steps"]


STEPS = ", ".join(map(str, range(9_000)))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(WITH.format(f"steps: {HUGE}, faults: [{{model: bit_flip, degree: 0.1}}]"), id="steps"),
        pytest.param(
            WITH.format(f"steps: {HUGE}, faults: [{{model: stale_shard, degree: 0.1, schedule: "
                        f"{{kind: steps, steps: [{STEPS}]}}}}]"), id="listed steps",
        ),
        pytest.param(WITH.format("world_size: 1000000000000, faults: [{model: bit_flip, degree: 0.1}]"), id="ranks"),
        pytest.param(
            WITH.replace("dim: 10", "dim: 1000000000000").format("faults: [{model: bit_flip, degree: 0.1}]"), id="size"
        ),
    ],
)  # fmt: skip
def test_huge_trials_are_planned_in_seconds_and_constant_memory(text: str) -> None:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    assert "all/s0" in listing(text)
    assert time.process_time() - start < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


AXES = ", ".join(f"a{i}: {{{', '.join(f'l{j}: {{}}' for j in range(10))}}}" for i in range(300))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WITH.format("steps: 5") + "seeds: 100000000\n", "seeds must be at most 10000, got 100000000"),
        (WITH.format("steps: 5") + f"axes: {{{AXES}}}\n", "x.yaml: more than 20000 trials"),
        (WITH.format("steps: 5") + "seeds: 9999\naxes: {optimizer.lr: [1, 2, 3]}\n", "x.yaml: more than 20000 trials"),
        (WITH.format("steps: 5") + "scales: {big: {seeds: 9999}}\naxes: {optimizer.lr: [1, 2, 3]}\n",
         "x.yaml: more than 20000 trials"),
    ],
    ids=["seeds", "axes", "both", "scale"],
)  # fmt: skip
def test_more_trials_than_anybody_plans_are_refused_at_once(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    start = time.process_time()
    assert exit_code(["run", str(tmp_path / "x.yaml"), "-n", "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert time.process_time() - start < 5
    assert out == "" and err.count("\n") == 1 and expected in err
