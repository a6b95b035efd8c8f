"""What theory expects of a run's divergence."""

import numpy as np

from paftbench import theory
from paftbench.analysis.runs import Run
from paftbench.looks import find_look
from paftbench.records.plan import MitigationFields


def closed_form(run: Run) -> tuple[np.ndarray, np.ndarray] | None:
    """Completed steps [t] and the divergence that theory expects before each synchronisation, [t].

    None unless it applies: SGD; one gaussian noise in std at `result` of all ranks, parameters and steps; at most one
    mitigation, and that periodic.
    """
    trial, rows, parameters = run.trial, run.steps(), run.found.parameters
    optimizer = trial.optimizer
    if len(trial.faults) != 1 or not rows or not parameters or optimizer.name != "sgd":
        return None
    (fault,) = trial.faults
    if fault.unit is None or fault.unit != find_look(fault.model).std_unit:
        return None
    if (fault.site, fault.ranks, fault.parameters, fault.schedule) != ("result", "all", "*", "every_step"):
        return None
    if len(trial.mitigations) > 1 or not all(find_look(own.name).periodic for own in trial.mitigations):
        return None
    sync = next(iter(trial.mitigations), MitigationFields(name="none"))
    if fault.degree is None or optimizer.momentum is None or optimizer.weight_decay is None:
        return None
    if not (sync.period is None or (type(sync.period) is int and sync.period > 0)):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        path = theory.drift(
            [float(row.lr) for row in rows],
            momentum=optimizer.momentum,
            weight_decay=optimizer.weight_decay,
            period=sync.period,
            state=sync.state or "params",
            overlap=sync.overlap or False,
        )
        expected = theory.divergence(path.before, std=fault.degree, ranks=trial.world_size, parameters=parameters)
    return np.array([row.step + 1.0 for row in rows]), expected
