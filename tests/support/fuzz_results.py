"""Result directories with one thing wrong: a finished sweep made without training, and ways to damage it."""

import json
import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paftbench.experiment import load, plan
from paftbench.store.files import encode_line, write_json
from paftbench.store.plans import write_plan
from support.small_gate import YAML, check
from support.whole_result import VIEWS, whole_result

RECORDS = ("trial.json", "result.json")
LOGS = ("steps.jsonl", "injections.jsonl")
DEEP = json.loads("[" * 60 + "]" * 60)
# Whatever a disk, another program or another version may have left in the place of a value.
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 10**18, 10**30, 1e308, -1e308, 1e-320, math.nan, math.inf, "", "x", "nan", "a\x1b[31mb", "\x07",
    "\ud800", "\u202e", "$x^{$", "../../x", "é" * 200, [], [[]], {}, {"name": 3}, [None], [1e308, -1e308], DEEP,
)  # fmt: skip
RAW = {
    "beyond a float": "1e400", "beyond any float": "1" + "0" * 400, "five thousand digits": "9" * 5000,
    "nested without end": "[" * 100_000, "nested and closed": '{"a":' * 5000 + "1" + "}" * 5000, "a bare word": "x",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A way to damage a sweep; `damaged` is the file that a refusal has to name, empty where anything may come out."""

    name: str
    spoil: Callable[[Path], None]
    damaged: str = ""


def finished(folder: Path) -> Path:
    """An experiment, its finished sweep `small` and its baseline `b.json`, as `check` leaves them."""
    path = folder / "small.yaml"
    path.write_text(YAML)
    for number, item in enumerate(plan(load(str(path)))):
        directory = folder / "small" / item.id
        write_plan(directory, item, None)
        mitigation = str(item.labels.get("mitigation"))
        quality = {"ddp": 6.0, "paft_sync": 2.0}.get(mitigation, 1.0) + 0.01 * (number % 5)
        planned = json.loads((directory / "trial.json").read_text())
        write_json(directory / "result.json", _result(planned, quality, 5 if item.trial.faults else 0))
        (directory / "steps.jsonl").write_text("".join(encode_line(_row(step)) for step in range(item.trial.steps)))
        strikes = range(5) if item.trial.faults else ()
        (directory / "injections.jsonl").write_text("".join(encode_line(_strike(step)) for step in strikes))
        (directory / "log.txt").write_text("done\n")
    assert check(folder, "--baseline", folder / "b.json", "--update") == 0
    return folder


def _result(planned: dict[str, Any], quality: float, drawn: int) -> dict[str, Any]:
    return whole_result(
        planned, outcome="degraded" if quality > 5 else "masked", bitwise_identical=False, gradient_bytes=8000,
        metric={"name": "loss", "direction": "min", "chance": 9.0, "untrained": 9.0, **dict.fromkeys(VIEWS, quality)},
        history={"step": [0, 10, 20], **{view: [9.0, quality + 0.5, quality] for view in VIEWS}},
        strikes=dict.fromkeys(("drawn", "landed", "changed"), drawn), parameters=200,
        **{name: {"final": 0.1, "median": 0.1, "max": 0.2} for name in ("divergence", "inconsistency", "nsr")},
        mitigation={"syncs": 10, "periods": [2, 2], "bytes": 800, "collectives": 10, "memory_bytes": 0},
        time={"step_median_s": 0.01, "step_max_s": 0.02, "total_s": 0.2, "overhead_valid": False, "sections": {}},
        environment={"argv": ["paftbench", "run"], "versions": {"torch": "2"}, "python": "3", "git": None},
    )  # fmt: skip


def _row(step: int) -> dict[str, Any]:
    return {
        "step": step, "loss": [1.0, 1.5], "lr": 0.1, "grad_norm": 1.0, "divergence": 0.1, "divergence_before": None,
        "inconsistency": 0.1, "nsr": 0.1, "strikes": 1, "synced": step % 2 == 1, "period": 2, "decision": None,
        "seconds": {"compute": 0.01},
    }  # fmt: skip


def _strike(step: int) -> dict[str, Any]:
    return {
        "step": step, "attempt": 0, "fault": "noise", "rank": 0, "site": "result", "parameter": "w", "index": 1,
        "landed": True, "bit": 3, "bits_before": "0x3f800000", "bits_after": "0x3f800008", "value_before": 1.0,
        "value_after": 2.0, "elements": None, "norm": None,
    }  # fmt: skip


def cases(seed: int) -> list[Case]:
    """Every kind of damage, what it strikes drawn from a seed."""
    draw = random.Random(seed)
    found = []
    for name in (*RECORDS, *LOGS):
        found += [Case(f"{name} is {kind}", _replaced(name, by, draw.random()), name) for kind, by in _PLACES.items()]
        found += [Case(f"{name}: {kind}", _written(name, kind, raw, draw.random()), name) for kind, raw in RAW.items()]
        found += [Case(f"{name}: bit {i}", _flipped(name, draw.random())) for i in range(6)]
        found += [Case(f"{name}: cut {i}", _cut(name, draw.random()), name * (name in RECORDS)) for i in range(3)]
        found += [Case(f"{name}: a key less {i}", _edited(name, draw.random(), _drop)) for i in range(10)]
        found += [Case(f"{name}: a key twice", _twice(name, draw.random()), name)]
        for number, value in enumerate(VALUES):
            found.append(Case(f"{name}: value {number}", _edited(name, draw.random(), _put(value))))
        found.append(Case(f"{name}: another schema", _of_another_schema(name, draw.random()), name * (name in RECORDS)))
    found += [Case(f"sweep: {name}", spoil) for name, spoil in _LINKS.items()]
    return found


def _trial(folder: Path, at: float, name: str = "trial.json") -> Path:
    """One of the trials that have such a file with something in it."""
    paths = sorted(path for path in (folder / "small").glob(f"*/{name}") if path.stat().st_size)
    return paths[int(at * len(paths))].parent


def _replaced(name: str, by: Callable[[Path], None], at: float) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = _trial(folder, at, name) / name
        path.unlink()
        by(path)

    return spoil


def _outside(path: Path) -> Path:
    return path.parents[2] / "outside" / "file.json"


_PLACES: dict[str, Callable[[Path], None]] = {
    "a directory": Path.mkdir, "a pipe": os.mkfifo, "a link out": lambda path: path.symlink_to(_outside(path)),
    "a device": lambda path: path.symlink_to("/dev/zero"), "empty of all": lambda path: path.write_text("\n"),
    "a list": lambda path: path.write_text("[]\n"), "noughts": lambda path: path.write_bytes(b"\0" * 100 + b"\n"),
    "not text": lambda path: path.write_bytes(b"\xff\xfe{}\n"),
}  # fmt: skip


def _written(name: str, kind: str, raw: str, at: float) -> Callable[[Path], None]:
    """The file with a field that holds something json.dumps would not write."""

    def spoil(folder: Path) -> None:
        path = _trial(folder, at, name) / name
        first, *rest = path.read_text().splitlines()
        start = f'{{"extra": {raw}, '
        path.write_text("\n".join([start + first.removeprefix("{"), *rest, ""]))

    return spoil


def _twice(name: str, at: float) -> Callable[[Path], None]:
    return _written(name, "twice", '1, "extra": 2', at)


def _flipped(name: str, at: float) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = _trial(folder, at, name) / name
        content = bytearray(path.read_bytes())
        content[int(at * 7919 * len(content)) % len(content)] ^= 1 << int(at * 8)
        path.write_bytes(content)

    return spoil


def _cut(name: str, at: float) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = _trial(folder, at, name) / name
        content = path.read_bytes().rstrip()
        path.write_bytes(content[: int(at * 7919 * len(content)) % len(content)])

    return spoil


def _edited(name: str, at: float, change: Callable[[Any, Any, float], None]) -> Callable[[Path], None]:
    """One place of the file's JSON, or of a line of it, changed."""

    def spoil(folder: Path) -> None:
        path = _trial(folder, at, name) / name
        texts = path.read_text().splitlines() if name in LOGS else [path.read_text()]
        line = int(at * len(texts))
        payload = json.loads(texts[line])
        places = list(_places(payload))
        change(*places[int(at * 7919) % len(places)], at)
        texts[line] = json.dumps(payload)
        path.write_text("\n".join(texts) + "\n")

    return spoil


def _places(value: Any) -> Any:
    """Every container in a JSON value with each of its keys."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _drop(inside: Any, key: Any, at: float) -> None:
    del inside[key]


def _put(value: Any) -> Callable[[Any, Any, float], None]:
    def put(inside: Any, key: Any, at: float) -> None:
        inside[key] = value

    return put


def _of_another_schema(name: str, at: float) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = _trial(folder, at, name) / name
        path.write_text(path.read_text().replace('"schema": 1', '"schema": 99', 1))

    return spoil


def _renamed(folder: Path) -> None:
    trial = _trial(folder, 0.5)
    trial.rename(trial.with_name("é\x1b[2J"))


def _copied(folder: Path) -> None:
    trial = _trial(folder, 0.5)
    copy = trial.with_name("copy")
    copy.mkdir()
    for path in trial.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())


def _led_out(folder: Path) -> None:
    trial = _trial(folder, 0.5)
    trial.rename(folder / "outside" / trial.name)
    trial.symlink_to(folder / "outside" / trial.name)


def _claimed(folder: Path) -> None:
    trial = _trial(folder, 0.5)
    (trial / "result.json").unlink()
    os.mkfifo(trial.with_name(f".{trial.name}.claim"))


def _crossed(folder: Path) -> None:
    first, second = _trial(folder, 0.2), _trial(folder, 0.8)
    (first / "result.json").write_bytes((second / "result.json").read_bytes())


_LINKS: dict[str, Callable[[Path], None]] = {
    "figures lead out": lambda folder: (folder / "small" / "figures").symlink_to(folder / "outside"),
    "figures is a file": lambda folder: (folder / "small" / "figures").write_text("x"),
    "the report leads out": lambda folder: (folder / "small" / "report.html").symlink_to(folder / "outside" / "x.html"),
    "the report is a directory": lambda folder: (folder / "small" / "report.html").mkdir(),
    "the log leads out": lambda folder: _replaced("log.txt", _PLACES["a link out"], 0.5)(folder),
    "a link round": lambda folder: (folder / "small" / "round").symlink_to(folder / "small"),
    "a trial leads out": _led_out, "a trial renamed": _renamed, "a trial twice": _copied, "results crossed": _crossed,
    "a pipe for a claim": _claimed,
}  # fmt: skip
