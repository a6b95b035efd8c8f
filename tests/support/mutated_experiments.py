"""Experiment files as nobody would write them: shipped ones and one with plugins of its own, mutated, seeded."""

import json
import random
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import yaml

from paftbench.experiment.file import shipped_experiments
from paftbench.experiment.yaml_text import read_yaml

PLUGINS = '''
from dataclasses import dataclass
from paftbench.faults import SparseFault
from paftbench.mitigations.contract import Mitigation

@dataclass(frozen=True, kw_only=True)
class Fading(SparseFault):
    """Strikes that become rarer: `degree` at the first step, over `fade` steps."""
    name = "fading"
    units = {"per_element": (0.0, 1.0)}
    unit: str = "per_element"
    fade: int = 100

    def expected(self, size, step, dtype):
        return size * self.degree * self.fade / (self.fade + step)

@dataclass(frozen=True, kw_only=True)
class Now(Mitigation):
    """Synchronises when it likes: `period` is a number, a word or nothing; `weights` and `options` are anything."""
    name = "now_and_then"
    period: int | str | None = None
    weights: tuple[float, ...] = (1.0,)
    options: dict[str, float] | None = None
'''
OWN = """
schema: 1
name: own
base: {workload: {name: quadratic, dim: 50}, steps: 60, world_size: 2, batch_per_rank: 8}
axes:
  mitigation:
    ddp: {mitigations: []}
    now: {mitigations: [{name: now_and_then, period: 7, weights: [1, 0.5], options: {a: 1}}, {name: clip_value}]}
grids:
  - name: fading
    set: {faults: [{name: f, model: fading, degree: 0.1, fade: 10, schedule: {kind: window, start: 3, stop: 50}}]}
    axes: {faults.f.degree: [0.1, 0.2]}
  - name: stale
    set: {faults: [{name: s, model: stale_shard, degree: 0.5, delay: 3, schedule: {kind: steps, steps: [1, 5]}}]}
    seeds: [[0, 1], [1, 1], 2]
seeds: 2
expect: [{where: {mitigation: now, grid: fading}, value: outcome, never: [crashed]}]
scales: {big: {set: {epochs: 2}, axes: {faults.f.degree: [0.5]}, grids: {stale: {set: {world_size: 4}}}, seeds: 1}}
"""
ODD_SCALARS = [
    "012", "0x10", "1:30", "0b11", "1_0", "1__0", "1e999", "-1", "0", "0.5", "1e-320", ".nan", ".inf", "-.inf", "nan",
    "true", "no", "~", "''", "2024-01-01", "9" * 30, "9" * 5000, str(2**53), str(2**63), str(10**18), "1e18", "1e300",
    "'12'", "'012'", "inf", "[]", "{}", "[[]]", "[null]", "{a: {}}", "[1, [2, {b: 3}]]", "*x", "&x 1", "!!int 3",
    "<<: *x", "{<<: {a: 1}}", "\"\\e[31m\"", "\"\\ud800\"", "\"a\\nb\"", "ünïcödé ☃ 𝒳", "a/b", "../..", "x" * 300,
    "[" * 500 + "]" * 500, "{random: 1}", "{random: 99999999999}", "[0, 1, 2, 3]", "all", "*", "'*'", "{kind: burst}",
    "{kind: steps, steps: [0, 0, 1]}", "{kind: probability, p: 2}", "gpt2", "resnet", "{name: gpt2}", "-", "?", ":",
    "@a", "`a`", "%", "|\n   text", "> x", "#", "1:", "{1: 2}", "{true: 1, 1: 2}", "{? [a] : b}", "paft_sync",
]  # fmt: skip
ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 1.5, -0.5, 1e300, 1e-300, 10**12, 2**52, 2**53, 2**62, 2**63, 10**19, "", "x",
    "0", "12", "007", "nan", "all", "*", "result", "parameter", "sync", "optimizer_state", "torchrun", "cuda", "fp16",
    "bf16", "adamw", "☃", "a.b", "a/b", "x" * 500, [], {}, [[]], [{}], [None], [1, 1], [1, "1", 1.0, True], {"": 1},
    {"a": None}, {"random": 2}, {"name": "quadratic", "dim": 10**9}, {"name": "paft_sync"}, {"name": ["x"]},
    {"model": "bit_flip", "degree": 1e-3, "bits": 64}, {"kind": "burst", "every": 10**15, "length": 10**14},
    {"kind": "steps", "steps": list(range(40))}, {"kind": "probability", "p": 0.5}, list(range(200)),
    [[0, 1], [0, 2], [1, 1]], [[0]], [[0, 1, 2]], {"where": {}, "value": "nsr", "at_least": 0},
]  # fmt: skip
ODD_KEYS = ["", "x", "steps", "epochs", "faults", "mitigations", "name", "seed", "seeds", "set", "axes", "on", "y",
            "faults.noise.degree", "faults..x", ".", "mitigations.clip_value.limit", "schema", "☃", "1", "fault_seed",
            "grids", "optimizer.lr", "nodes", "procs", "placement", "checkpoint.every", "adapter"]  # fmt: skip
LIKELY = {
    "precision": ["fp16", "bf16"], "placement": ["torchrun"], "procs": [1, 2], "epochs": [0.5, 1, 10**9],
    "device": ["cpu"], "exact": [True], "checkpoint": [{"every": 5}], "fault_seed": [3], "world_size": [1, 3, 8],
    "lr_schedule": [{"name": "step", "milestones": [0.5]}], "optimizer": [{"name": "adam", "betas": [0.5, 0.9]}],
    "measure_every": [3, None], "steps": [1, 7, 10**6, 10**13], "batch_per_rank": [1, 10**6], "seed": [5],
    "mitigations": [[], [{"name": "regather"}], [{"name": "clip_value"}, {"name": "clip_value", "limit": 1}]],
    "faults": [[], [{"model": "bit_flip", "degree": 1e-3, "schedule": {"kind": "probability", "p": 0.5}}]],
}  # fmt: skip
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d.]*(?:e[-+]?\d+)?(?![\w.])")


def originals() -> list[str]:
    """The texts that are mutated; the one with plugins stands for many."""
    shipped = [path.read_text(encoding="utf-8") for path in shipped_experiments().values()]
    quick = (files("paftbench.experiments") / "quickstart.yaml").read_text(encoding="utf-8")
    return [*shipped, *[OWN, quick] * (len(shipped) // 2)]


def mutated(number: int, texts: list[str]) -> tuple[str, list[str]]:
    """The text of a file, and overrides to plan it with; a function of `number` alone."""
    draw = random.Random(number)
    text = draw.choice(texts)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        text = draw.choice([_of_text, _of_structure, _of_structure])(text, draw)
    overrides = [f"{draw.choice(ODD_KEYS)}={draw.choice(ODD_SCALARS)}"] if draw.random() < 0.15 else []
    return text, overrides


def _of_text(text: str, draw: random.Random) -> str:
    lines = text.splitlines() or [""]
    at = draw.randrange(len(lines))
    kinds: dict[str, Callable[[], Any]] = {
        "delete": lambda: lines.pop(at),
        "double": lambda: lines.insert(at, lines[at]),
        "cut": lambda: lines.__setitem__(slice(at, None), [lines[at][: draw.randrange(len(lines[at]) + 1)]]),
        "indent": lambda: lines.__setitem__(at, " " * draw.randrange(5) + lines[at]),
        "tab": lambda: lines.__setitem__(at, "\t" + lines[at]),
        "value": lambda: lines.__setitem__(at, f"{lines[at].partition(':')[0]}: {draw.choice(ODD_SCALARS)}"),
        "number": lambda: lines.__setitem__(at, _NUMBER.sub(lambda _: draw.choice(ODD_SCALARS), lines[at], count=1)),
        "letter": lambda: lines.__setitem__(at, _with_letter(lines[at], draw)),
        "append": lambda: lines.append(draw.choice(ODD_SCALARS)),
        "key": lambda: lines.insert(at, f"{draw.choice(ODD_KEYS)}: {draw.choice(ODD_SCALARS)}"),
    }  # fmt: skip
    kinds[draw.choice(list(kinds))]()
    return "\n".join(lines)


def _with_letter(line: str, draw: random.Random) -> str:
    at = draw.randrange(len(line) + 1)
    return (
        line[:at] + draw.choice(list("{}[]:,&*#?|-<>=!%@'\"\\\0\x07\u2028\ufeffé_0")) + line[at + draw.randrange(2) :]
    )


def _of_structure(text: str, draw: random.Random) -> str:
    """A value deep inside replaced, left out, doubled or added to; a text that cannot be read is mutated as one."""
    try:
        content = read_yaml(text, "x")
    except ValueError:
        return _of_text(text, draw)
    if not isinstance(content, dict) or not content:
        return _of_text(text, draw)
    at: Any = content
    while True:
        inside = [key for key in (at if isinstance(at, dict) else range(len(at))) if isinstance(at[key], dict | list)]
        inside = [key for key in inside if at[key]]
        if not inside or draw.random() < 0.25:
            break
        at = at[draw.choice(inside)]
    key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
    kind = draw.choice(["replace", "replace", "replace", "delete", "double", "add", "wrap", "many", "likely", "likely"])
    value = draw.choice(ODD_VALUES)
    if kind == "replace":
        at[key] = value
    elif kind == "delete":
        del at[key]
    elif kind == "likely":
        name = draw.choice(list(LIKELY))
        at = draw.choice([content.get("base"), *(grid.get("set") for grid in _grids(content))])
        if isinstance(at, dict):
            at[name] = draw.choice(LIKELY[name])
    elif kind == "wrap":
        at[key] = draw.choice([[at[key]], {"a": at[key]}, {draw.choice(ODD_KEYS): at[key]}])
    elif kind == "many" and isinstance(at, list):
        at[key:key] = [at[key]] * draw.choice([3, 30, 1000])
    elif isinstance(at, dict):
        at[draw.choice(ODD_KEYS)] = at[key] if kind == "double" else value
    else:
        at.insert(0, at[key] if kind == "double" else value)
    return json.dumps(content) if draw.random() < 0.3 else yaml.dump(content, allow_unicode=True)


def _grids(content: dict[str, Any]) -> list[dict[str, Any]]:
    grids = content.get("grids")
    return [grid for grid in grids if isinstance(grid, dict)] if isinstance(grids, list) else []
