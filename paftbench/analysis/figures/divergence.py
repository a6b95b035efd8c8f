"""How far replicas drifted apart, a panel per fault, on a log axis; closed forms beside what they describe."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paftbench import theory
from paftbench.analysis.figures.grid import columns_of, panel_grid
from paftbench.analysis.figures.style import BLACK, handles, looks
from paftbench.analysis.figures.traces import draw_divergence
from paftbench.analysis.panels import Panel, panels
from paftbench.analysis.runs import Run, Sweep


def figure(sweep: Sweep) -> Figure:
    """The saw-tooth of synchronised runs and the random walk of plain DDP; zero stands at the bottom of the axis."""
    shown = panels(sweep)
    look = looks(shown)
    explained: list[bool] = []

    def draw(axes: Axes, panel: Panel) -> None:
        draw_divergence(axes, panel, look)
        explained.append(_draw_theory(axes, panel))

    fig, heading = panel_grid(shown, look, draw)
    named = handles({name: own for name, own in look.items() if name != "golden"})
    if any(explained):
        named.append(Line2D([], [], color=BLACK, linewidth=0.7, linestyle=":", label="closed form"))
    ncols = min(3 if columns_of(shown) == 1 else 6, max(1, len(named)))
    heading.legend(handles=named, loc="center", ncols=ncols, handlelength=2.8)
    return fig


def _draw_theory(axes: Axes, panel: Panel) -> bool:
    drawn = False
    for runs in panel.series.values():
        peaks = closed_form(runs[0])
        if peaks is not None:
            axes.plot(*peaks, color=BLACK, linewidth=0.7, linestyle=":", zorder=7)
            drawn = True
    return drawn


def closed_form(run: Run) -> tuple[np.ndarray, np.ndarray] | None:
    """Completed steps [t] and the divergence that theory expects before each synchronisation, [t].

    None unless it applies: SGD; one gaussian noise in std at `result` of all ranks, parameters and steps; at most
    PAFT-Sync.
    """
    trial, rows, parameters = run.trial, run.steps(), run.get("parameters")
    faults, mitigations = trial.get("faults", ()), trial.get("mitigations", ())
    if len(faults) != 1 or not rows or not parameters or trial["optimizer"]["name"] != "sgd":
        return None
    noise = ("gaussian_noise", "std", "result", "all", "*", "every_step")
    if tuple(faults[0].get(key) for key in ("model", "unit", "site", "ranks", "parameters", "schedule")) != noise:
        return None
    if len(mitigations) > 1 or any(mitigation["name"] != "paft_sync" for mitigation in mitigations):
        return None
    sync = mitigations[0] if mitigations else {}
    path = theory.drift(
        [float(row["lr"]) for row in rows],
        momentum=trial["optimizer"]["momentum"],
        weight_decay=trial["optimizer"]["weight_decay"],
        period=sync.get("period"),
        state=sync.get("state", "params"),
        overlap=sync.get("overlap", False),
    )
    expected = theory.divergence(
        path.before, std=faults[0]["degree"], ranks=trial["world_size"], parameters=int(parameters)
    )
    return np.array([row["step"] + 1.0 for row in rows]), expected
