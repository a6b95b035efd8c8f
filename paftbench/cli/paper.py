"""`paftbench paper`: the paper's tables and figures, run where they are missing, drawn beside the paper's, judged."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paftbench.cli import sweeping
from paftbench.cli.options import PluginFiles, load_plugins, message, say
from paftbench.errors import Missing, Refused

if TYPE_CHECKING:
    from paftbench.store.directory import Planned
    from paftbench.sweep.engines.engine import Engine
    from paftbench.sweep.sweep import Policy

GROUPS = {"tables": "table", "figures": "fig", "fig2": "fig2", "fig5": "fig5", "fig6": "fig6", "fig7": "fig7",
          "fig9": "fig9", "all": ""}  # fmt: skip
ScaleFlag = Literal["small", "paper"]  # nano models here, or the paper's own models, data and schedules
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ITEM]... [KEY=VALUE]...",
        help="table1, fig5a, optimizer_state, ..; or all (the default), tables, figures, fig5; fields of a trial.",
    ),
]
Scale = Annotated[ScaleFlag, typer.Option("--scale", help="Nano models, or the paper's own.")]
Tflops = Annotated[
    float | None,
    typer.Option("--tflops", metavar="X", help="With -n at scale paper: TFLOP/s that your GPU sustains in fp32."),
]
HERE = "leave them out (workers=4) or let nodes=1 say that this one has all the GPUs"


@dataclass(frozen=True, kw_only=True)
class PlanFlag:
    """The trials of an item with the user's overrides, and those of them that `-k` selects."""

    everything: Sequence["Planned"]
    selected: Sequence["Planned"]


def paper(
    arguments: Arguments = None,
    scale: Scale = "small",
    tflops: Tflops = None,
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
    """Reproduce the PAFT paper's tables and figures: run what is missing, draw ours beside theirs, judge each claim."""
    items = chosen([text for text in arguments or () if "=" not in text])
    overrides = [text for text in arguments or () if "=" in text]
    if tflops is not None and not tflops > 0:
        raise Refused(f"--tflops (TFLOP/s that a GPU sustains) must be > 0, got {tflops}")
    from paftbench.sweep.sweep import Policy

    local = sweeping.chosen_engine(jobs, engine)
    plugins = load_plugins(plugin)
    overrides += sweeping.fields(placement, procs, device)
    plans = planned(items, scale, overrides, keyword, plugins, data_needed=not plan_only)
    policy = Policy(force=force, retry_errors=retry_errors, rerun_stale=rerun_stale, stop_at_error=stop_at_error)
    root = root_of(out, scale)
    if plan_only:
        from paftbench.cli.paper_plan import show

        show(root, {item: own.selected for item, own in plans.items()}, scale, policy, local.slots, tflops)
        return 0
    return reproduced(root, plans, scale, policy, local)


def chosen(names: Sequence[str]) -> list[str]:
    """Items in the paper's order, groups spelt out; `LookupError` with the nearest names for one that is neither."""
    from paftbench.paper import ITEMS
    from paftbench.suggest import did_you_mean

    wanted: set[str] = set()
    for name in names or ["all"]:
        if name not in ITEMS and name not in GROUPS:
            raise Missing(f"the paper has no item {name!r}{did_you_mean(name, [*ITEMS, *GROUPS])}")
        wanted.update([name] if name in ITEMS else (item for item in ITEMS if item.startswith(GROUPS[name])))
    return [item for item in ITEMS if item in wanted]


def root_of(out: Path, scale: ScaleFlag) -> Path:
    """Where items lie, a directory each; scales never mix."""
    return out / "paper" if scale == "small" else out / "paper" / f"scale-{scale}"


def planned(
    items: Sequence[str],
    scale: ScaleFlag,
    overrides: Sequence[str],
    keyword: str | None,
    plugins: Sequence[Path],
    *,
    data_needed: bool,
) -> dict[str, PlanFlag]:
    """The trials of every item, all of them validated before any runs; items without any that `-k` selects left out."""
    from paftbench.experiment import load, plan

    plans: dict[str, PlanFlag] = {}
    for item in items:
        experiment = load(f"paper/{item}", scale)
        everything = plan(experiment, overrides, plugins=plugins, data_needed=data_needed)
        if selected := sweeping.matching(everything, keyword):
            plans[item] = PlanFlag(everything=everything, selected=selected)
    if not plans:
        raise Missing(f"-k {keyword!r} matches no trial of {', '.join(items)}; list them with -n")
    return plans


def reproduced(root: Path, plans: dict[str, PlanFlag], scale: ScaleFlag, policy: "Policy", engine: "Engine") -> int:
    """Run, draw and judge item by item; a trial that several items have runs in the first of them."""
    from paftbench.sweep.sharing import share, siblings_of

    for item, own in plans.items():
        if any(trial.trial.nodes > 1 for trial in own.selected):
            raise Refused(f"{item}: it has trials of more than one machine; {HERE}")
        refuse_mixture(item, scale, root / item, own.everything)
        engine.expect(module for trial in own.selected for module in trial.trial.workload.imports)
    code = 0
    ran: list[Path] = []
    for item, own in plans.items():
        directory = root / item
        message(f"{item}:")
        # With --force a copy of what this command has just run is as new as it can be; older ones are not.
        shared = share(directory, own.selected, policy, ran if policy.force else siblings_of(directory))
        if shared:
            message(f"{len(shared)} trials are those of other items, copied")
        left = [trial for trial in own.selected if not (policy.force and trial.id in shared)]
        # An item whose trials are all copied has nothing to run, but is drawn and judged as the others are.
        code = max(code, sweeping.swept(directory, left, policy, engine)) if left else code
        ran.append(directory)
        look(item, directory, scale)
        if code and policy.stop_at_error:
            break
    return code


def refuse_mixture(item: str, scale: ScaleFlag, directory: Path, planned: Sequence["Planned"]) -> None:
    """`ValueError` where a directory holds trials of other settings: figures and verdicts would take them together.

    Parts of the item as its file has it go together, whatever part was run before, and so do more seeds.
    """
    from paftbench.experiment import load, plan
    from paftbench.store.directory import find_trials, read_record

    found = (
        {seedless(read_record(path).planned.trial.fields) for path in find_trials(directory)}
        if directory.is_dir()
        else set()
    )
    wanted = {seedless(trial.trial.spec()) for trial in planned}
    if found <= wanted:
        return
    own = plan(load(f"paper/{item}", scale), data_needed=False)
    if not found | wanted <= {seedless(trial.trial.spec()) for trial in own}:
        raise Refused(f"{directory} holds trials of other settings than these; give variants an --out of their own")


def seedless(trial: Mapping[str, Any]) -> str:
    """What trials that differ in their seeds have in common."""
    kept = {key: value for key, value in trial.items() if key not in ("seed", "fault_seed")}
    return json.dumps(kept, sort_keys=True)


def look(item: str, directory: Path, scale: ScaleFlag) -> None:
    """Draw an item beside the paper's and judge its claims; paths and verdicts on stdout, and kept in its directory."""
    from paftbench import paper as analysis
    from paftbench.store.files import write_json, write_text

    for path in analysis.draw(item, directory, scale=scale):
        say(path)
    verdicts = analysis.verdicts(item, directory, scale=scale)
    text = analysis.render(verdicts)
    write_text(directory / "verdicts.txt", text + "\n")
    found = {"schema": 1, "item": item, "scale": scale, "verdicts": [asdict(verdict) for verdict in verdicts]}
    write_json(directory / "verdicts.json", found)
    say(text)
    say(directory / "verdicts.txt")
