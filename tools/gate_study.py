"""How often the gate is wrong: `python tools/gate_study.py [--groups 50] [--jobs N] [--out DIR] [--to DIR]`.

Trains `ci/quick` once with 5 fresh seeds a group, real trainings with their own data order and strikes, and then judges
the groups by what `paftbench check` judges with. Unchanged system: each group by the experiment's expectations, and
against the next group as its baseline, so that no two runs share a seed. Regressions: the same groups with their
measured quality made worse by 1, 2 and 3 spreads of the golden runs over seeds, and groups trained with a real one.
Writes `table.txt` and `study.json`. Interrupted, it goes on where it was.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

NAME, SEEDS = "ci/quick", 5
FEW = "clean=false"  # clean runs would double the time and are bitwise the golden ones
REGRESSIONS = {
    "half the learning rate": ("optimizer.lr=0.05",),
    "half as many synchronisations": ("mitigations.paft_sync.period=20",),
}
REGRESSED = 5  # groups that are trained with each regression
SPREADS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0)  # margins, in spreads
MITIGATED = ("paft_sync", "clip_paft_sync")
WIDTH = 120
SHIFTS = (0, 1, 2, 3)  # how much worse, in spreads
ROOT = Path(__file__).resolve().parent.parent / "results"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Trials as they were planned, as plain mappings, and their results by id."""

    root: Path
    plans: Sequence[Mapping[str, Any]]
    results: Mapping[str, Any]

    def group(self, number: int) -> "Trained":
        """The trials of one group's seeds, called 0 to 4 as those of every group."""
        first = SEEDS * number
        own = [plan for plan in self.plans if first <= plan["trial"]["seed"] < first + SEEDS]
        return Trained(root=self.root, plans=[_renumbered(plan, first) for plan in own], results=self.results)

    def worse(self, by: float, *, golden: bool) -> "Trained":
        """Qualities worse by so much, in the metric's unit: of mitigated runs, or of all with `golden`."""
        ids = {plan["id"] for plan in self.plans if golden or plan["trial"]["mitigations"]}
        return Trained(
            root=self.root, plans=self.plans,
            results={id: _shifted(result, by) if id in ids else result for id, result in self.results.items()},
        )  # fmt: skip

    @property
    def sign(self) -> float:
        """By what a quality has to be multiplied so that more is better."""
        return 1.0 if next(iter(self.results.values()))["metric"]["direction"] == "max" else -1.0

    def sweep(self) -> Any:
        from paftbench.gate import sweep_of
        from paftbench.records.door import parse
        from paftbench.records.plan import Plan
        from paftbench.records.result import Result

        plans = [parse(Plan, plan, plan["id"]) for plan in self.plans]
        return sweep_of(self.root, plans, {id: parse(Result, result, id) for id, result in self.results.items()})


def train(out: Path, groups: int, regressed: int, jobs: int | None) -> dict[str, Trained]:
    """Run what is missing, the unchanged system first; by name. Without a regression where none is `regressed`."""
    asked = {"": (groups, ())}
    if regressed:
        asked |= {name: (min(groups, regressed), change) for name, change in REGRESSIONS.items()}
    found = {}
    for name, (count, change) in asked.items():
        overrides = [f"seeds={SEEDS * count}", FEW, *change]
        many = [] if jobs is None else ["-j", str(jobs)]
        command = ["run", NAME, *overrides, "--out", str(out), *many]
        print("paftbench", *command, flush=True)
        # Not in this process, whose script every trial would import again.
        code = "from paftbench.cli.main import main; main()"
        subprocess.run([sys.executable, "-c", code, *command], check=True, stdout=subprocess.DEVNULL)
        found[name] = read(out, overrides)
    return found


def read(out: Path, overrides: Sequence[str]) -> Trained:
    from paftbench.experiment import load, plan
    from paftbench.store.files import read_json

    plans = [json.loads(json.dumps(item.spec())) for item in plan(load(NAME), overrides)]
    results = {own["id"]: read_json(out / NAME / own["id"] / "result.json") for own in plans}
    return Trained(root=out / NAME, plans=plans, results=results)


def study(trained: Mapping[str, Trained], groups: int, regressed: int = REGRESSED) -> dict[str, Any]:
    """Every number of the table, and every run's quality by cell and seed."""
    from paftbench.experiment import load

    tails, finals = qualities(trained[""], tail=True), qualities(trained[""], tail=False)
    spread = stdev(_known(tails["golden"]))
    asked = load(NAME)
    # Those on cells that this study leaves out would select nothing.
    shipped = [one for one in asked.expect if one.where.get("grid") != "clean"]
    gates = [(asked.tolerance, shipped), *((spread * factor, lost_at_most(spread * factor)) for factor in SPREADS)]
    parts = [trained[""].group(number) for number in range(groups)]
    baselines = [baseline_of(part) for part in parts]

    def judged_all(whole: Sequence[Trained], kept: Sequence[Trained]) -> list[dict[str, Any]]:
        """For the gate as it is shipped, and for each margin; `kept` has golden runs as they are, to compare with."""
        alone, against = [part.sweep() for part in kept], [part.sweep() for part in whole]
        return [
            {
                "margin": margin,
                "expect": rates(by_expectations(sweep, expected) for sweep in alone),
                "bound": rates(
                    by_baseline(sweep, baselines[(number + 1) % groups], margin) for number, sweep in enumerate(against)
                ),
            }
            for margin, expected in gates
        ]

    shifts = []
    for k in SHIFTS:
        whole = [part.worse(k * spread, golden=True) for part in parts]
        kept = [part.worse(k * spread, golden=False) for part in parts]
        shifts.append({"worse_by_spreads": k, "gates": judged_all(whole, kept)})
    real = []
    for name, change in REGRESSIONS.items():
        if name not in trained:
            continue
        worse = [trained[name].group(number) for number in range(min(groups, regressed))]
        sizes = {
            cell: trained[""].sign * (mean(_known(tails[cell])) - mean(_known(values))) / spread
            for cell, values in qualities(trained[name], tail=True).items() if _known(values)
        }  # fmt: skip
        gates_of = judged_all(worse, worse)
        real.append({"name": name, "change": list(change), "size_in_spreads": sizes, "gates": gates_of})
    return {
        "experiment": NAME, "groups": groups, "seeds": SEEDS, "tolerance": asked.tolerance, "spread": spread,
        "spread_of_last_evaluation": stdev(_known(finals["golden"])),
        "spread_by_cell": {cell: stdev(_known(values)) for cell, values in tails.items()},
        "shifts": shifts, "real": real, "tails": tails, "finals": finals,
    }  # fmt: skip


def qualities(trained: Trained, *, tail: bool) -> dict[str, list[float | None]]:
    """The judged quality of every run, by cell in the order of the seeds: its tail, or its last evaluation."""
    from paftbench.analysis.cells import cells
    from paftbench.gate.selecting import subject_of
    from paftbench.gate.trajectory import tail_of

    found = cells(trained.sweep())
    return {subject_of(cell): [tail_of(run) if tail else run.metric(run.judge) for run in cell.runs] for cell in found}


def lost_at_most(margin: float) -> list[Any]:
    """An expectation that no mitigated cell loses more than a margin."""
    from paftbench.records.expectation import Expectation

    return [Expectation(where={"mitigation": MITIGATED}, value="quality_lost", at_most=margin)]


def by_expectations(sweep: Any, expected: Sequence[Any]) -> str:
    """The verdict of `check`, first mode."""
    from paftbench.gate import judged, verdict_of
    from paftbench.gate.selecting import select

    return verdict_of(judged(sweep, select(expected, sweep, NAME), None, "bound", 0.0))


def by_baseline(sweep: Any, baseline: Any, margin: float) -> str:
    """The verdict of `check --mode bound`."""
    from paftbench.gate import judged, verdict_of

    return verdict_of(judged(sweep, [], baseline, "bound", margin))


def baseline_of(trained: Trained) -> Any:
    """A group as `check --update` keeps it."""
    from paftbench.gate import baseline

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "baseline.json"
        baseline.write(path, baseline.make(trained.sweep()))
        return baseline.read(path)


def rates(verdicts: Iterable[str]) -> dict[str, Any]:
    """How often each verdict came, with Wilson's interval, 95 %."""
    from paftbench.analysis.stats import wilson

    listed = list(verdicts)
    counts = {verdict: listed.count(verdict) for verdict in ("fail", "inconclusive")}
    counts["not pass"] = sum(counts.values())
    return {
        key: {"hits": hits, "of": len(listed), "interval": wilson(hits, len(listed))} for key, hits in counts.items()
    }


def table(found: Mapping[str, Any]) -> str:
    """The study as text."""
    from paftbench.analysis.text import draw

    spread = found["spread"]
    names = ["as shipped", *map(_spreads, SPREADS)]
    columns: dict[str, list[str]] = {
        key: [] for key in ("system", "margin", "expect: fail", "expect: not pass", "bound: fail", "bound: not pass")
    }
    sections = []
    for row in [*found["shifts"], *found["real"]]:
        title = row["name"] if "name" in row else _worse(row["worse_by_spreads"]) or "unchanged"
        for number, (name, own) in enumerate(zip(names, row["gates"], strict=True)):
            columns["system"].append("" if number else title)
            columns["margin"].append(f"{name} {own['margin']:.4f}")
            for mode in ("expect", "bound"):
                columns[f"{mode}: fail"].append(_rate(own[mode]["fail"]))
                columns[f"{mode}: not pass"].append(_rate(own[mode]["not pass"]))
            sections.append(title)
    by_cell = ", ".join(f"{cell} {value:.4f}" for cell, value in found["spread_by_cell"].items())
    sizes = [
        f"{row['name']} ({', '.join(row['change'])}): "
        + ", ".join(f"{cell} {size:+.1f}" for cell, size in row["size_in_spreads"].items())
        for row in found["real"]
    ]
    notes = (
        f"{found['experiment']} without clean runs; {found['groups']} groups of {found['seeds']} seeds, rates with "
        "95 % Wilson intervals. A spread is the standard deviation over seeds of golden's quality, the tail of its "
        f"evaluations: {spread:.4f} (of the last evaluation alone {found['spread_of_last_evaluation']:.4f}; by cell: "
        f"{by_cell}). Worse by k spreads: measured qualities were shifted, in the expect columns those of mitigated "
        "runs only, because expectations compare with golden runs of the same job, in the bound columns all. As "
        "shipped: expect is the experiment's own list, bound has its tolerance as the margin; in the other rows expect "
        "is quality_lost at most the margin. Not pass is fail or inconclusive."
        + (" Real regressions, worse in the mean by so many spreads:" if found["real"] else "")
    )
    head = draw(columns, sections=sections, width=WIDTH, left=("system", "margin"))
    return "\n".join(
        [head, "", textwrap.fill(notes, WIDTH, break_on_hyphens=False), *(f"  {line}" for line in sizes), ""]
    )


def _known(values: Iterable[float | None]) -> list[float]:
    """A run that broke down has no tail."""
    return [value for value in values if value is not None]


def _rate(own: Mapping[str, Any]) -> str:
    low, high = own["interval"]
    return f"{own['hits']}/{own['of']} {f'{low:.0%}..{high:.0%}':>9}"


def _spreads(count: float) -> str:
    return f"{count:g} spread{'' if count == 1 else 's'}"


def _worse(spreads: int) -> str:
    """Empty for none."""
    return f"worse by {_spreads(spreads)}" if spreads else ""


def _renumbered(plan: Mapping[str, Any], first: int) -> dict[str, Any]:
    seed = plan["trial"]["seed"] - first
    own = deepcopy(dict(plan))
    own["trial"] |= {"seed": seed, "fault_seed": seed}
    own["name"] = f"{plan['name'].rpartition('/s')[0]}/s{seed}"
    return own


def _shifted(result: Mapping[str, Any], by: float) -> dict[str, Any]:
    """A result with its quality worse by so much; what is no number stays none."""
    own = deepcopy(dict(result))
    by = by if own["metric"]["direction"] == "max" else -by
    for view in ("mean_model", "worst_rank", "rank0"):
        own["metric"][view] = None if own["metric"][view] is None else own["metric"][view] - by
        own["history"][view] = [value - by if i else value for i, value in enumerate(own["history"][view])]
    return own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=50, help="of 5 seeds each (default: 50)")
    parser.add_argument("--regressed", type=int, default=REGRESSED, help=f"groups with each (default: {REGRESSED})")
    parser.add_argument("--jobs", type=int, help="trials at a time (default: one per core)")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gate_study", help="where the trials lie")
    parser.add_argument("--to", type=Path, default=ROOT / "reference" / "gate", help="where the table goes")
    arguments = parser.parse_args()
    if arguments.groups < 2 or arguments.regressed < 0:
        parser.error(f"--groups must be >= 2 and --regressed >= 0, got {arguments.groups} and {arguments.regressed}")
    from kept import keep_study

    trained = train(arguments.out, arguments.groups, arguments.regressed, arguments.jobs)
    found = study(trained, arguments.groups, arguments.regressed)
    found["command"] = f"python tools/gate_study.py --groups {arguments.groups} --regressed {arguments.regressed}"
    ran = next(iter(trained[""].results.values()))["environment"]
    found["environment"] = {key: value for key, value in ran.items() if key != "argv"}
    keep_study(arguments.to, found, table(found))


if __name__ == "__main__":
    main()
