"""Figures of a sweep, one file per figure; matplotlib without its global state."""

import importlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from paftbench.analysis.runs import Sweep, load
from paftbench.plugins import did_you_mean

FIGURES = ("curves", "divergence", "timeline", "overview")
Format = Literal["png", "pdf", "svg"]
_METADATA = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def draw(directory: Path, figures: Sequence[str], trial: str | None = None, format: Format = "png") -> list[Path]:
    """Draw `figures` of a sweep or trial directory into DIR/figures; returns their paths.

    `trial` narrows to one trial, by the start of its id or by its name. `ValueError` where nothing has finished and for
    an unknown figure, `LookupError` for an unknown trial.
    """
    import matplotlib

    from paftbench.analysis.figures.style import RC

    for name in figures:
        if name not in FIGURES:
            raise ValueError(f"no figure {name!r}{did_you_mean(name, FIGURES)}")
    sweep = load(directory)
    if trial is not None:
        sweep = narrowed(sweep, trial)
    paths = []
    for name in figures:
        path = directory / "figures" / f"{name}{'' if trial is None else '-' + sweep.selected[0].id}.{format}"
        path.parent.mkdir(exist_ok=True)
        with matplotlib.rc_context(RC):
            figure = importlib.import_module(f"{__name__}.{name}").figure(sweep)
            partial = path.with_name(f".{path.name}.{os.getpid()}")
            figure.savefig(partial, format=format, dpi=180, metadata=_METADATA[format])
        os.replace(partial, path)
        paths.append(path)
    return paths


def narrowed(sweep: Sweep, trial: str) -> Sweep:
    """The sweep with one trial selected."""
    found = [run for run in sweep.selected if run.name == trial or run.id.startswith(trial)]
    if len(found) != 1:
        what = "several trials" if found else "no trial"
        raise LookupError(f"{what} in {sweep.directory} called {trial!r}; expected an id, its start, or a full name")
    if found[0].result is None:
        raise ValueError(f"trial {trial} has not finished yet")
    return replace(sweep, selected=(found[0],))
