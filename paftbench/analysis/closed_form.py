"""What theory expects of a run's divergence."""

import numpy as np

from paftbench import theory
from paftbench.analysis.runs import Run
from paftbench.records.shape import POSITIVE


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
    sync, optimizer, std = mitigations[0] if mitigations else {}, trial["optimizer"], faults[0].get("degree")
    if std is None or not {"momentum", "weight_decay"} <= optimizer.keys():
        return None
    if not (sync.get("period") is None or POSITIVE.fits(sync["period"])):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        path = theory.drift(
            [float(row["lr"]) for row in rows],
            momentum=optimizer["momentum"],
            weight_decay=optimizer["weight_decay"],
            period=sync.get("period"),
            state=sync.get("state", "params"),
            overlap=sync.get("overlap", False),
        )
        expected = theory.divergence(path.before, std=std, ranks=trial["world_size"], parameters=int(parameters))
    return np.array([row["step"] + 1.0 for row in rows]), expected
