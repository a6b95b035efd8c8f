"""`paftbench ls`: what may be used in an experiment."""

import inspect
import json
import os
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal

import typer

from paftbench.cli.options import PluginFiles, columns, load_plugins, say
from paftbench.errors import Missing

Kind = Literal["fault-models", "mitigations", "workloads", "data", "experiments"]


def ls(
    kind: Annotated[
        Kind, typer.Argument(metavar="KIND", help="fault-models, mitigations, workloads, data, experiments.")
    ],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One of them, with every field.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    plugin: PluginFiles = None,
) -> None:
    """List fault models, mitigations, workloads, data sets or experiments; with NAME, everything about one."""
    load_plugins(plugin)
    if kind == "data":
        entries = _data()
    elif kind == "experiments":
        entries = _experiments()
    else:
        entries = _plugins(kind.replace("-", "_"))
    if name is not None:
        from paftbench.suggest import did_you_mean

        if name not in entries:
            singular = kind.removesuffix("s").replace("-", " ") if kind != "data" else "data set"
            raise Missing(f"no {singular} {name!r}{did_you_mean(name, entries)}")
        say(json.dumps(entries[name], indent=1, default=str) if as_json else _one(entries[name]))
    elif as_json:
        brief = [{key: value for key, value in entry.items() if key != "fields"} for entry in entries.values()]
        say(json.dumps(brief, indent=1, default=str))
    else:
        keys = [key for key in next(iter(entries.values()), {}) if key not in ("fields", "about", "expect")]
        say(columns([keys, *([_brief(key, entry[key]) for key in keys] for entry in entries.values())]))


def _plugins(kind: str) -> dict[str, dict[str, Any]]:
    from paftbench.plugins import known

    return {name: _plugin(kind, name, cls) for name, cls in sorted(known(kind).items())}


def _plugin(kind: str, name: str, cls: Any) -> dict[str, Any]:
    from paftbench.plugins import origin_of
    from paftbench.ranks.sites import BUILT_SITES, Site

    entry: dict[str, Any] = {"name": name}
    if hasattr(cls, "units"):
        entry["unit"] = {unit: f"[{low:g}, {high:g}]" for unit, (low, high) in cls.units.items()}
        entry["sites"] = [str(site) for site in Site if site in cls.sites & BUILT_SITES]
    elif hasattr(cls, "metric"):
        entry["metric"] = f"{cls.metric} ({cls.direction})"
        entry["sizes"] = dict(cls.sizes)
    else:
        entry["aggregates"] = "yes" if cls.aggregates else "no"
    entry["from"] = origin_of(kind, name)
    entry["file"] = os.path.relpath(inspect.getfile(cls))
    entry["about"] = inspect.cleandoc(cls.__doc__ or "")
    entry["fields"] = [_field(cls, item) for item in fields(cls) if item.init]
    return entry


def _field(cls: Any, item: Any) -> dict[str, Any]:
    from paftbench.plugins import meaning_of

    default = item.default if item.default is not MISSING else None
    if item.default_factory is not MISSING:
        default = item.default_factory()
    return {"name": item.name, "default": default, "meaning": meaning_of(cls, item.name)}


def _data() -> dict[str, dict[str, Any]]:
    from paftbench.workloads.data import KNOWN, data_directory, files_of

    entries = {}
    for name, known in sorted(KNOWN.items()):
        here = all(path.is_file() for path in files_of(name, data_directory()))
        get = f"get it: paftbench data {name}" + (" path=FILE" if name == "tokens" else "")
        state = "embedded" if not known.files else ("here" if here else get)
        entries[name] = {
            "name": name, "kind": known.kind, "state": state, "size": known.size, "licence": known.licence,
            "source": known.source,
        }  # fmt: skip
    return entries


def _experiments() -> dict[str, dict[str, Any]]:
    from paftbench.experiment.file import load, shipped_experiments

    entries = {}
    for name, file in shipped_experiments().items():
        experiment = load(name)
        about = " ".join(experiment.about.split())
        entries[name] = {
            "name": name, "cost": experiment.cost, "file": os.path.relpath(str(file)), "about": about,
            "grids": [grid.name for grid in experiment.grids],
            "axes": sorted({axis.name for axis in (*experiment.axes, *(a for g in experiment.grids for a in g.axes))}),
        }  # fmt: skip
    return entries


def _one(entry: dict[str, Any]) -> str:
    lines = [f"{key}: {_text(value)}" for key, value in entry.items() if key not in ("fields", "about")]
    if entry.get("about"):
        lines += ["", entry["about"]]
    if entry.get("fields"):
        rows = [["field", "default", "meaning"]]
        rows += [[f["name"], json.dumps(f["default"], default=str), f["meaning"]] for f in entry["fields"]]
        lines += ["", columns(rows)]
    return "\n".join(lines)


def _brief(key: str, value: Any) -> str:
    return ", ".join(value) if key == "sizes" and value else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items()) or "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
