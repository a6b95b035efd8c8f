"""Figures of a sweep, one file per figure; matplotlib without its global state.

A figure that has nothing to show for a sweep raises `NothingToDraw`, a `ValueError` of one line.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from paftbench.analysis.figures.quiet import hush
from paftbench.analysis.figures.saving import save
from paftbench.analysis.panels import NothingToDraw
from paftbench.analysis.runs import Sweep, load
from paftbench.errors import Missing, Refused
from paftbench.store.files import check_inside
from paftbench.suggest import did_you_mean

hush()

FIGURES = ("curves", "degree", "divergence", "timeline", "periods", "overhead", "overview")
Format = Literal["png", "pdf", "svg"]


def draw(directory: Path, figures: Sequence[str], trial: str | None = None, format: Format = "png") -> list[Path]:
    """Draw `figures` of a sweep or trial directory into DIR/figures; returns their paths.

    `trial` narrows to one trial, by the start of its id or by its name. `ValueError` where nothing has finished, for an
    unknown figure and for one with nothing to show, `LookupError` for an unknown trial.
    """
    for name in figures:
        if name not in FIGURES:
            raise Refused(f"no figure {name!r}{did_you_mean(name, FIGURES)}")
    sweep = _loaded(directory, trial)
    return [_draw(sweep, name, trial is not None, format) for name in figures]


def draw_all(
    directory: Path,
    trial: str | None = None,
    format: Format = "png",
    skipped: Callable[[str, str], None] = lambda name, reason: None,
) -> list[Path]:
    """Every figure that applies; `skipped` hears of the others, and why. `ValueError` as `draw` where none applies."""
    sweep = _loaded(directory, trial)
    paths = []
    for name in FIGURES:
        try:
            paths.append(_draw(sweep, name, trial is not None, format))
        except NothingToDraw as reason:
            skipped(name, str(reason))
    if not paths:
        raise NothingToDraw(f"no figure applies to {directory}")
    return paths


def _loaded(directory: Path, trial: str | None) -> Sweep:
    sweep = load(directory)
    return sweep if trial is None else narrowed(sweep, trial)


def _draw(sweep: Sweep, name: str, one_trial: bool, format: Format) -> Path:
    import matplotlib

    from paftbench.analysis.figures.style import RC

    folder = sweep.directory / "figures"
    path = folder / f"{name}{'-' + sweep.selected[0].id if one_trial else ''}.{format}"
    check_inside(path, sweep.directory)
    with matplotlib.rc_context(RC):
        figure = importlib.import_module(f"{__name__}.{name}").figure(sweep)
        folder.mkdir(exist_ok=True)
        return save(figure, path, format)


def narrowed(sweep: Sweep, trial: str) -> Sweep:
    """The sweep with one trial selected."""
    found = [run for run in sweep.selected if run.name == trial or run.id.startswith(trial)]
    if len(found) != 1:
        what = "several trials" if found else "no trial"
        raise Missing(f"{what} in {sweep.directory} called {trial!r}; expected an id, its start, or a full name")
    if found[0].result is None:
        raise Refused(f"trial {trial} has not finished yet")
    return replace(sweep, selected=(found[0],))
