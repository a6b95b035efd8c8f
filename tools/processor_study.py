"""How far results move on other processors: `python tools/processor_study.py [--jobs N] [--out DIR] [--to DIR]`.

Runs rows of the committed tables again under the variables that make oneDNN, MKL and torch compute as on processors
with fewer instructions, and compares each with the same row as this machine runs it. Same seeds, same draws: what moves
is rounding, and what training makes of it. Writes `table.txt` and `study.json`, whose `tolerances` are what
`tests/docs/test_reference_results.py` holds reruns on other machines to. Interrupted, it goes on where it was.
"""

import argparse
import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isfinite, isnan
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent / "results"
REFERENCE: Final = ROOT / "reference"
BASE: Final = "as it is"
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    BASE: {},
    "oneDNN AVX512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "oneDNN AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "oneDNN SSE41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "MKL AVX512": {"MKL_CBWR": "AVX512"},
    "MKL AVX2": {"MKL_CBWR": "AVX2"},
    "MKL COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"},
    "ATen avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "ATen default": {"ATEN_CPU_CAPABILITY": "default"},
    "all AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "all oldest": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default"},
}
ROWS: Final[Mapping[str, Sequence[str]]] = {
    "quickstart": (
        "golden/noise/s0", "noise/ddp/faults.noise.degree=0.03/s1", "llama2/paft_sync/s0", "flips/ddp/s0",
        "flips/clip_paft_sync/s0",
    ),
    "core/resnet": (
        "golden/s3", "noise/ddp/faults.noise.degree=0.1/s0", "noise/paft_sync/faults.noise.degree=0.1/s1",
        "noise/paft_dyn/faults.noise.degree=0.03/s0", "noise/paft_dyn/faults.noise.degree=0.1/s2",
        "flips/ddp/faults.flips.degree=0.001/s0", "flips/paft_sync/faults.flips.degree=0.01/s2",
        "stale/ddp/faults.stale.degree=1.0/s0",
    ),
    "core/gpt2": (
        "golden/s1", "noise/ddp/faults.noise.degree=0.003/s0", "noise/paft_dyn/faults.noise.degree=0.001/s1",
        "flips/paft_sync/faults.flips.degree=0.01/s0", "stale/ddp/faults.stale.degree=1.0/s0",
    ),
    "core/llama2": (
        "golden/s2", "noise/paft_dyn/faults.noise.degree=0.003/s1", "flips/ddp/faults.flips.degree=0.1/s0",
        "stale/paft_sync/faults.stale.degree=1.0/s0",
    ),
    "stale_shard": ("stale/paft_sync/faults.stale.degree=0.5/s0",),
}  # fmt: skip
VIEWS: Final = ("mean_model", "worst_rank", "rank0")
VALUES: Final = ("metric", "divergence", "nsr")
WILD: Final = 1e6  # a divergence that only bits of an exponent make: rounding decides what is left of such a run
WIDTH: Final = 120


def rerun(table: str, name: str, directory: Path) -> dict[str, Any]:
    """A committed row's trial run again in a directory, by this process; its result."""
    from paftbench.records.trial import parse_trial
    from paftbench.store.directory import Planned, write_planned
    from paftbench.store.files import read_json
    from paftbench.trial import run_trial

    row = row_of(table, name)
    trial, old = parse_trial(row["trial"]), row["result"]
    data = trial.workload.data_id()
    planned = Planned(
        id=trial.id(data), name=name, experiment=table, grid=old["grid"], labels=old["labels"], golden_id=None,
        judge="worst_rank", tolerance=0.02, plugins=(), sources={}, data=data, trial=trial,
    )  # fmt: skip
    write_planned(directory, planned)
    if run_trial(directory) != 0:
        raise RuntimeError(f"{table}: {name} failed; see {directory}")
    return read_json(directory / "result.json")


def row_of(table: str, name: str) -> dict[str, Any]:
    """A line of a committed table: what was run and what came out."""
    from paftbench.store.files import read_lines

    return next(row for row in read_lines(REFERENCE / table / "trials.jsonl") if row["result"]["name"] == name)


def kind_of(trial: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """What a row is compared with: its faults and its metric, or what makes rounding count for more than they do."""
    top = result["divergence"]["max"]
    if result["outcome"] == "nonfinite" or not (isfinite(top) and top < WILD):
        why = "wild"
    elif len(set(result["mitigation"]["periods"])) > 1:
        why = "periods chosen"
    else:
        why = "+".join(fault["model"] for fault in trial["faults"]) or "no fault"
    return f"{why}, {result['metric']['name']}"


def moved(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, float]:
    """By how much two results of one row differ: the metric in its own unit, the others as a share."""
    return {
        "metric": max(_apart(then["metric"][view], now["metric"][view]) for view in VIEWS),
        "divergence": max(_share(then["divergence"][part], now["divergence"][part]) for part in ("max", "final")),
        "nsr": max(_share(then["nsr"][part], now["nsr"][part]) for part in ("median", "max")),
    }


def _apart(then: float, now: float) -> float:
    """Infinite where one is a number and the other is not; NaN and an infinity are themselves."""
    if then == now or (isnan(then) and isnan(now)):
        return 0.0
    return abs(then - now) if isfinite(then) and isfinite(now) else float("inf")


def _share(then: float | None, now: float | None) -> float:
    """Of the larger of the two; none where neither was measured."""
    if then is None or now is None:
        return 0.0 if then is now else float("inf")
    apart = _apart(then, now)
    return apart / max(abs(then), abs(now)) if apart and isfinite(apart) else apart


def study(found: Mapping[str, Mapping[tuple[str, str], Mapping[str, Any]]]) -> dict[str, Any]:
    """Every difference, and the largest of each kind of row; `found` is results by setting and row.

    `ValueError` where a draw of strikes hangs on the processor: none may.
    """
    rows = []
    for key, base in found[BASE].items():
        results = {setting: own[key] for setting, own in found.items() if setting != BASE}
        for setting, result in results.items():
            if result["strikes"]["drawn"] != base["strikes"]["drawn"]:
                drawn = (result["strikes"]["drawn"], base["strikes"]["drawn"])
                raise ValueError(f"{' '.join(key)} under {setting}: {drawn[0]} strikes drawn, {drawn[1]} {BASE}")
        row = {
            "table": key[0], "name": key[1], "kind": kind_of(row_of(*key)["trial"], base),
            "base": {part: base[part] for part in ("outcome", "metric", "divergence", "nsr", "strikes")},
            "moved": {setting: moved(base, result) for setting, result in results.items()},
            "outcomes": sorted({result["outcome"] for result in results.values()} - {base["outcome"]}),
        }  # fmt: skip
        rows.append(row)
    kinds = sorted({row["kind"] for row in rows})
    return {
        "settings": {setting: SETTINGS[setting] for setting in found},
        "bits": {setting: next(iter(own.values()))["environment"]["bits"] for setting, own in found.items()},
        "tolerances": {kind: _largest(row for row in rows if row["kind"] == kind) for kind in kinds},
        "rows": rows,
    }


def _largest(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    every = [values for row in rows for values in row["moved"].values()]
    return {value: max(values[value] for values in every) for value in VALUES}


def table(found: Mapping[str, Any]) -> str:
    """The study as text: each row's largest difference, each kind's below."""
    from paftbench.analysis.text import draw, number

    names = ("kind", "row", "worst rank", *VALUES, "moved most under", "other outcomes")
    columns: dict[str, list[str]] = {name: [] for name in names}
    rows = sorted(found["rows"], key=lambda row: row["kind"])
    for row in rows:
        values = _largest([row])
        most = max(row["moved"], key=lambda setting: row["moved"][setting]["metric"])
        cells = [
            row["kind"], f"{row['table']} {row['name']}", number(row["base"]["metric"]["worst_rank"]),
            *(number(values[value]) for value in VALUES), most, ", ".join(row["outcomes"]),
        ]  # fmt: skip
        for name, cell in zip(names, cells, strict=True):
            columns[name].append(cell)
    notes = (
        f"{len(rows)} rows, each {BASE} and under {len(found['settings']) - 1} settings: the largest difference of "
        "the metric in its own unit (of mean_model, worst_rank and rank0), of the divergence (max and final) and of "
        "the NSR (median and max) as a share of the larger. Strikes drawn are equal in all of them. Periods chosen: a "
        "mitigation decided by what it measured, so the last digit may move a synchronisation. Wild: flipped bits of "
        f"an exponent took the divergence above {WILD:g}."
    )
    kinds = {"kind": list(found["tolerances"])} | {
        value: [number(own[value]) for own in found["tolerances"].values()] for value in VALUES
    }
    left = ("kind", "row", "moved most under", "other outcomes")
    settings = [
        f"  {name}: {' '.join(f'{key}={value}' for key, value in own.items()) or 'no variable set'}"
        for name, own in found["settings"].items()
    ]
    return "\n".join(
        [
            draw(columns, sections=[row["kind"] for row in rows], width=WIDTH, left=left), "",
            draw(kinds, sections=[""] * len(kinds["kind"]), width=WIDTH, left=left), "",
            textwrap.fill(notes, WIDTH, break_on_hyphens=False), *settings, "",
        ]
    )  # fmt: skip


def place(out: Path, setting: str, key: tuple[str, str]) -> Path:
    return out / setting.replace(" ", "_") / "_".join(key).replace("/", "_")


def run_missing(out: Path, setting: str, rows: Sequence[tuple[str, str]]) -> None:
    """In a process of its own: libraries read the variables once."""
    names = {name for own in SETTINGS.values() for name in own} | {"DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"}
    clean = {name: value for name, value in os.environ.items() if name not in names}
    variables = {**clean, **SETTINGS[setting], "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--out", str(out), "--only", setting, "--rows", *map(" ".join, rows)]
    subprocess.run(command, env=variables, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="settings at a time (default: 1)")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "processor_study", help="where the trials lie")
    parser.add_argument("--to", type=Path, default=REFERENCE / "processors", help="where the table goes")
    parser.add_argument(
        "--rows",
        nargs="+",
        default=[f"{table} {name}" for table, names in ROWS.items() for name in names],
        help="'TABLE NAME', some of them",
    )
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=[*SETTINGS], help="some of them")
    parser.add_argument("--only", choices=SETTINGS, help=argparse.SUPPRESS)  # a process of run_missing
    arguments = parser.parse_args()
    rows = [(table, name) for table, _, name in (row.partition(" ") for row in arguments.rows)]
    settings = [setting for setting in SETTINGS if setting == BASE or setting in arguments.settings]
    from kept import keep_study

    from paftbench.store.files import read_json

    if arguments.only is not None:
        for key in rows:
            directory = place(arguments.out, arguments.only, key)
            if not (directory / "result.json").is_file():
                print(arguments.only, *key, flush=True)
                rerun(*key, directory)
        return
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda setting: run_missing(arguments.out, setting, rows), settings))
    results = {
        setting: {key: read_json(place(arguments.out, setting, key) / "result.json") for key in rows}
        for setting in settings
    }
    environments = [result["environment"] for own in results.values() for result in own.values()]
    base = next(iter(results[BASE].values()))["environment"]
    found = {
        "command": shlex.join(["python", "tools/processor_study.py", *sys.argv[1:]]),
        "commits": sorted({own["git"]["sha"] for own in environments if own["git"]}),
        "environment": {key: value for key, value in base.items() if key != "argv"},
        **study(results),
    }
    keep_study(arguments.to, found, table(found))


if __name__ == "__main__":
    main()
