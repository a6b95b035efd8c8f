"""`paftbench verify`: does a plugin keep what every plugin promises."""

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from paftbench.cli.options import PluginFiles, load_plugins, message


def verify(
    plugins: Annotated[
        list[str],
        typer.Argument(metavar="FILE.py", help="Files with plugins, or names of plugins."),
    ],
    fast: Annotated[bool, typer.Option("--fast", help="Only what takes seconds.")] = False,
    plugin: PluginFiles = None,
) -> int:
    """Try the contract suite on every plugin of a file; exit 1 where a promise is broken."""
    import torch

    torch.set_num_threads(1)  # small tensors: threads would only wait for each other
    load_plugins(plugin)
    classes = [cls for target in plugins for cls in _classes(target)]
    broken = [cls for cls in classes if not _verified(cls, fast=fast)]
    return 1 if broken else 0


def _classes(target: str) -> list[Any]:
    """The plugins of a file, those that are installed from it if any; or the plugin of that name."""
    from paftbench.plugins import KINDS, did_you_mean, find, names

    if not target.endswith(".py") and not Path(target).exists():
        kinds = [kind for kind in KINDS if target in names(kind)]
        if not kinds:
            everything = {name for kind in KINDS for name in names(kind)}
            raise LookupError(f"no plugin {target!r}{did_you_mean(target, everything)}")
        return [find(kind, target) for kind in kinds]
    path = Path(target).resolve()
    classes = _of_file(path)
    if not classes:
        load_plugins([path])
        classes = _of_file(path)
    return classes


def _of_file(path: Path) -> list[Any]:
    """What is registered from a file."""
    from paftbench.plugins import KINDS, known

    return [cls for kind in KINDS for cls in known(kind).values() if Path(inspect.getfile(cls)).resolve() == path]


def _verified(cls: Any, *, fast: bool) -> bool:
    """Try one plugin, a line per promise; whether all hold."""
    from paftbench.contract.suite import findings
    from paftbench.plugins import KINDS

    title = f"{KINDS[cls.plugin_kind]} {cls.name}"
    message(f"verify: {title}" + (", the fast part" if fast else ""))
    typer.echo(f"{title} ({os.path.relpath(inspect.getfile(cls))})")
    states: list[str] = []
    for found in _silenced(findings(cls, fast=fast)):
        states.append(found.state)
        typer.echo(f"  {found.state:6}  {_line(found)}")
    for remark in _silenced(_remarks(cls)):
        typer.echo(f"  note    {remark}")
    counts = {word: states.count(word) for word in ("holds", "BROKEN", "-")}
    typer.echo(f"  {counts['holds']} promises hold, {counts['BROKEN']} broken, {counts['-']} not tried")
    return not counts["BROKEN"]


def _silenced(results: Iterator[Any]) -> Iterator[Any]:
    """The same, while what the plugin prints goes to stderr: it is no result."""
    while True:
        with redirect_stdout(sys.stderr):
            result = next(results, None)
        if result is None:
            return
        yield result


def _line(found: Any) -> str:
    if found.broken:
        label, told = found.broken[0]
        share = f"{len(found.broken)} of {found.tried} cases" if found.tried > 1 else ""
        where = "; ".join(part for part in (label, share) if part)
        return f"{found.promise.sentence}: {told}" + (f" ({where})" if where else "")
    if not found.tried:
        return f"{found.promise.sentence}: not tried, {found.reason or 'nothing to try it on'}"
    return found.promise.sentence + (f" ({found.tried} cases)" if found.tried > 1 else "")


def _remarks(cls: Any) -> Iterator[str]:
    """What users ask and no promise says."""
    from paftbench.contract.mitigation_case import MitigationCase
    from paftbench.contract.mitigation_training import is_neutral

    if cls.plugin_kind == "mitigations":
        try:
            neutral = is_neutral(MitigationCase(cls, {}))
        except (Exception, SystemExit):
            return
        yield f"without faults it trains with {'the very bits' if neutral else 'other bits than those'} of plain DDP"
