"""`paftbench run`: an experiment's trials, those that are not done yet."""

from paftbench.cli import sweeping
from paftbench.cli.options import PluginFiles, columns, load_plugins, message, say
from paftbench.errors import Missing


def run(
    experiment: sweeping.ExperimentName,
    overrides: sweeping.Overrides = None,
    plan_only: sweeping.PlanOnly = False,
    jobs: sweeping.Jobs = None,
    keyword: sweeping.Keyword = None,
    out: sweeping.Out = sweeping.OUT,
    placement: sweeping.PlacementField = None,
    procs: sweeping.ProcsField = None,
    device: sweeping.DeviceField = None,
    engine: sweeping.EngineName = sweeping.LOCAL,
    stop_at_error: sweeping.StopAtError = False,
    retry_errors: sweeping.RetryErrors = False,
    force: sweeping.Force = False,
    rerun_stale: sweeping.RerunStale = False,
    plugin: PluginFiles = None,
) -> int:
    """Run an experiment; finished trials are skipped. Ends with the table and the directory."""
    from paftbench.experiment import load, plan
    from paftbench.experiment.forecast import Forecast
    from paftbench.sweep.sweep import Policy

    local = sweeping.chosen_engine(jobs, engine)
    plugins = load_plugins(plugin)
    given = [*(overrides or []), *sweeping.fields(placement, procs, device)]
    everything = plan(load(experiment), given, plugins=plugins)
    selected = sweeping.matching(everything, keyword)
    if not selected:
        raise Missing(f"-k {keyword!r} matches none of {len(everything)} trials; list them with -n")
    root = out / everything[0].experiment
    policy = Policy(force=force, retry_errors=retry_errors, rerun_stale=rerun_stale, stop_at_error=stop_at_error)
    if not plan_only:
        return sweeping.swept(root, selected, policy, local)
    records = sweeping.records_of(root, selected)
    lines = sweeping.listed(selected, records, policy, Forecast(root, records.values()))
    sweeping.warn(selected)
    say(columns([sweeping.Listed.COLUMNS, *(line.row() for line in lines)]))
    message(sweeping.total([line for line in lines if line.runs], local.slots))
    return 0
