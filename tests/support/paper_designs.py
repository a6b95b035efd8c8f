"""What each item of the paper is, to hold its experiment file against."""

from dataclasses import dataclass
from typing import Any

import pytest

from paftbench.experiment import load, plan
from paftbench.records.trial import Trial
from paftbench.store.directory import Planned

TABLE, FIGURE = (1e-4, 1e-3, 1e-2, 1e-1), (1e-4, 1e-3, 1e-2)
METHODS = {"ddp", "paft_sync_H5", "paft_sync_H10", "paft_sync_H50", "paft"}


@dataclass(frozen=True, kw_only=True)
class Design:
    """What an item is: how many trials it has at the small scale and at the paper's, and the paper's settings."""

    small: int
    paper: int
    model: str
    workers: tuple[int, ...]
    degrees: tuple[float, ...]
    methods: frozenset[str] = frozenset(METHODS)


def design(small: int, paper: int, model: str, workers: Any, degrees: Any, methods: Any = METHODS) -> Design:
    return Design(
        small=small, paper=paper, model=model, workers=tuple(workers), degrees=degrees, methods=frozenset(methods)
    )


PAFT = {"ddp", "paft"}
DESIGNS = {
    "table1": design(130, 63, "resnet18", [4], TABLE),
    "table2": design(156, 126, "resnet50", [4, 32], TABLE),
    "table3": design(18, 36, "resnet50", [4, 8, 16, 32], (), {"ddp", "paft_sync", "paft"}),
    "fig2a": design(30, 15, "resnet18", [4], TABLE, {"ddp"}),
    "fig2b": design(30, 15, "resnet18", [4], TABLE, {"ddp"}),
    "fig5a": design(45, 21, "resnet18", [4], FIGURE, PAFT),
    "fig5b": design(45, 21, "resnet50", [4], FIGURE, PAFT),
    "fig5c": design(27, 21, "resnet50", [32], FIGURE, PAFT),
    "fig6a": design(55, 18, "resnet18", [4], (1e-3,)),
    "fig6b": design(55, 18, "resnet50", [4], (1e-3,)),
    "fig6c": design(33, 18, "resnet50", [32], (1e-3,)),
    "fig7a": design(35, 21, "gpt2", [8], FIGURE, PAFT),
    "fig7b": design(55, 18, "gpt2", [8], (1e-4,)),
    "fig9a": design(30, 18, "resnet18", [8], (1e-4, 1e-1)),
    "fig9b": design(30, 18, "resnet18", [8], (1e-4, 1.0)),
    "optimizer_state": design(70, 24, "resnet50 gpt2", [4, 8], (1e-4, 1e-2), {"ddp", "paft", "paft_all"}),
}
ITEM = pytest.mark.parametrize("item", DESIGNS)


def planned(item: str, scale: str, *overrides: str) -> list[Planned]:
    return plan(load(f"paper/{item}", scale), overrides, data_needed=False)


def model_of(trial: Trial) -> str:
    return trial.workload.size if trial.workload.name == "resnet" else trial.workload.name


def degrees_of(items: list[Planned]) -> set[float]:
    return {fault.model.degree for item in items for fault in item.trial.faults}
