"""The paper's tables and figures: what each shows, and how it is drawn beside ours."""

from dataclasses import dataclass
from typing import Final, Literal

from paftbench.errors import Refused
from paftbench.suggest import did_you_mean

Kind = Literal["table", "curves", "divergence", "overhead"]

PLAIN = ("golden", "ddp")
DEGREES = ("golden", "ddp", "paft")
PERIODS = ("golden", "ddp", "paft_sync_H5", "paft_sync_H10", "paft_sync_H50", "paft")
STATES = ("golden", "ddp", "paft", "paft_all")


@dataclass(frozen=True, kw_only=True)
class Item:
    """One table or figure of the paper.

    `methods` by our labels, `world_sizes` and `noise` as the paper has them; `figures` are the digitised ones that its
    curves come from, `table` the printed one. `burst`: `noise` is that of bursts, on top of 1e-4 at every step.
    `stand_ins` pair degrees of the small scale with the paper's that they stand for, since a model so small is hurt
    only by more.
    """

    name: str
    title: str
    setting: str
    kind: Kind
    methods: tuple[str, ...]
    world_sizes: tuple[int, ...] = (4,)
    noise: tuple[float, ...] = ()
    figures: tuple[str, ...] = ()
    table: int | None = None
    burst: bool = False
    stand_ins: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class StatePart:
    """One of the comparisons of what is synchronised, and the degree that stands for the paper's at the small scale."""

    figure: str
    workload: str
    model: str
    setting: str
    noise: float
    stand_in: float


STATE_PARTS = (
    StatePart(
        figure="D-resnet50", workload="resnet", model="ResNet-50", setting="ResNet-50, CIFAR-100, 4 workers",
        noise=1e-2, stand_in=3e-2,
    ),
    StatePart(
        figure="D-gpt2", workload="gpt2", model="GPT-2", setting="GPT-2, OpenWebText, 8 workers",
        noise=1e-4, stand_in=1e-3,
    ),
)  # fmt: skip
_EVERY = (1e-4, 1e-3, 1e-2, 1e-1)
_SHOWN = (1e-4, 1e-3, 1e-2)
_R18, _R50, _GPT2 = "ResNet-18, CIFAR-10", "ResNet-50, CIFAR-100", "GPT-2, OpenWebText"


def _figure(
    number: str, model: str, workers: int, methods: tuple[str, ...], noise: tuple[float, ...], *figures: str,
    burst: bool = False, stand_ins: tuple[tuple[float, float], ...] = (),
) -> Item:  # fmt: skip
    bursts = f", bursts of std {noise[0]:g}" if burst else ""
    return Item(
        name=f"fig{number}", title=f"Figure {number}", setting=f"{model}, {workers} workers{bursts}", kind="curves",
        methods=methods, world_sizes=(workers,), noise=noise, figures=figures or (number,), burst=burst,
        stand_ins=stand_ins,
    )  # fmt: skip


_KNOWN = (
    Item(
        name="table1", title="Table 1", setting=f"{_R18}, 4 workers", kind="table", methods=PERIODS, noise=_EVERY,
        table=1, stand_ins=((3e-2, 1e-2),),
    ),
    Item(
        name="table2", title="Table 2", setting=f"{_R50}, 4 and 32 workers", kind="table", methods=PERIODS,
        noise=_EVERY, world_sizes=(4, 32), table=2, stand_ins=((3e-2, 1e-2),),
    ),
    Item(
        name="table3", title="Table 3", setting=f"{_R50}, time of a step", kind="overhead",
        methods=("ddp", "paft_sync", "paft"), world_sizes=(4, 8, 16, 32), table=3,
    ),
    _figure("2a", _R18, 4, PLAIN, _EVERY, "5a", "large-a", stand_ins=((3e-2, 1e-2),)),  # the same runs
    Item(
        name="fig2b", title="Figure 2b", setting=f"{_R18}, 4 workers", kind="divergence", methods=PLAIN, noise=_EVERY
    ),
    _figure("5a", _R18, 4, DEGREES, _SHOWN, stand_ins=((3e-2, 1e-2),)),
    _figure("5b", _R50, 4, DEGREES, _SHOWN, stand_ins=((3e-2, 1e-2),)),
    _figure("5c", _R50, 32, DEGREES, _SHOWN, stand_ins=((3e-2, 1e-2),)),
    _figure("6a", _R18, 4, PERIODS, (1e-3,), stand_ins=((3e-2, 1e-3),)),
    _figure("6b", _R50, 4, PERIODS, (1e-3,), stand_ins=((3e-2, 1e-3),)),
    _figure("6c", _R50, 32, PERIODS, (1e-3,), stand_ins=((3e-2, 1e-3),)),
    _figure("7a", _GPT2, 8, DEGREES, _SHOWN),
    _figure("7b", _GPT2, 8, PERIODS, (1e-4,), stand_ins=((1e-3, 1e-4),)),
    _figure("9a", _R18, 8, PERIODS, (1e-1,), burst=True),
    _figure("9b", _R18, 8, PERIODS, (1.0,), burst=True),
    Item(
        name="optimizer_state", title="Optimizer state", kind="curves", methods=STATES,
        figures=tuple(part.figure for part in STATE_PARTS),
        setting="; ".join(f"{part.setting}, std {part.noise:g}" for part in STATE_PARTS),
    ),
)  # fmt: skip
ITEMS: Final = tuple(item.name for item in _KNOWN)


def item_of(name: str) -> Item:
    """The item called `name`; `ValueError` with the nearest name where there is none."""
    for item in _KNOWN:
        if item.name == name:
            return item
    raise Refused(f"the paper has no {name!r}{did_you_mean(name, ITEMS)}")
