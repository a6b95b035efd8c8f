"""The process in which plugins are tried: `python -m paftbench.verify.child TASK`, TASK being JSON.

`paftbench verify` starts it and prints what it is sent: pairs of a word and a text. However a plugin ends this process,
only the word `verdict` is one.
"""

import faulthandler
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from paftbench.errors import Missing
from paftbench.plugins import KINDS, find, known, load_file, names
from paftbench.process import die_with_parent
from paftbench.suggest import did_you_mean
from paftbench.verify.mitigation_case import MitigationCase
from paftbench.verify.mitigation_training import is_neutral
from paftbench.verify.suite import PromiseResult, findings

Send = Callable[[str, str], None]


def main() -> None:
    """The command line: one argument, the targets, plugin files and the number of the pipe."""
    die_with_parent()
    faulthandler.enable()  # a crash shows the line that it happened on
    task = json.loads(sys.argv[1])
    # A process that a plugin starts must not hold the pipe open when this one has ended.
    os.set_inheritable(task["pipe"], False)
    pipe: Connection[tuple[str, str], None] = Connection(task["pipe"], readable=False)

    def send(word: str, text: str) -> None:
        pipe.send((word, text))

    with redirect_stdout(sys.stderr):  # what a plugin prints is no result
        try:
            broken = _tried(task["targets"], task["plugins"], send, fast=task["fast"])
        except (ValueError, LookupError) as error:
            if isinstance(error, KeyError | IndexError):
                raise
            send("refused", str(error))
        else:
            send("verdict", "broken" if broken else "kept")


def _tried(targets: Sequence[str], plugins: Sequence[str], send: Send, *, fast: bool) -> int:
    """Try everything; the number of plugins that break a promise."""
    torch.set_num_threads(1)  # small tensors: threads would only wait for each other
    for path in plugins:
        _load(Path(path), send)
    classes = [cls for target in targets for cls in _classes(target, send)]
    return sum(not _keeps(cls, send, fast=fast) for cls in classes)


def _load(path: Path, send: Send) -> None:
    send("trying", f"importing {path}")
    load_file(path)


def _classes(target: str, send: Send) -> list[Any]:
    """The plugins of a file, those that are installed from it if any; or the plugin of that name."""
    send("trying", f"importing {target}")
    if not target.endswith(".py") and not Path(target).exists():
        kinds = [kind for kind in KINDS if target in names(kind)]
        if not kinds:
            everything = {name for kind in KINDS for name in names(kind)}
            raise Missing(f"no plugin {target!r}{did_you_mean(target, everything)}")
        return [find(kind, target) for kind in kinds]
    path = Path(target).resolve()
    classes = _of_file(path)
    if not classes:
        _load(path, send)
        classes = _of_file(path)
    return classes


def _of_file(path: Path) -> list[Any]:
    """What is registered from a file."""
    return [cls for kind in KINDS for cls in known(kind).values() if Path(inspect.getfile(cls)).resolve() == path]


def _keeps(cls: Any, send: Send, *, fast: bool) -> bool:
    """Try one plugin, a line per promise; whether all hold."""
    # What is told before each step is what is blamed where the process ends in it.
    title = f"{KINDS[cls.plugin_kind]} {cls.name}"
    send("message", f"verify: {title}" + (", the fast part" if fast else ""))
    send("line", f"{title} ({os.path.relpath(inspect.getfile(cls))})")
    states: list[str] = []
    for found in findings(cls, fast=fast, begin=lambda promise: send("trying", promise.sentence)):
        states.append(found.state)
        send("line", f"  {found.state:6}  {_line(found)}")
    send("trying", "training without faults")
    if remark := _remark(cls):
        send("line", f"  note    {remark}")
    counts = {word: states.count(word) for word in ("holds", "BROKEN", "-")}
    send("line", f"  {counts['holds']} promises hold, {counts['BROKEN']} broken, {counts['-']} not tried")
    return not counts["BROKEN"]


def _line(found: PromiseResult) -> str:
    if found.broken:
        label, told = found.broken[0]
        share = f"{len(found.broken)} of {found.tried} cases" if found.tried > 1 else ""
        where = "; ".join(part for part in (label, share) if part)
        return f"{found.promise.sentence}: {told}" + (f" ({where})" if where else "")
    if not found.tried:
        return f"{found.promise.sentence}: not tried, {found.reason or 'nothing to try it on'}"
    return found.promise.sentence + (f" ({found.tried} cases)" if found.tried > 1 else "")


def _remark(cls: Any) -> str:
    """What users ask and no promise says, where there is such."""
    if cls.plugin_kind != "mitigations":
        return ""
    try:
        neutral = is_neutral(MitigationCase(cls, {}))
    except (Exception, SystemExit):
        return ""
    return f"without faults it trains with {'the very bits' if neutral else 'other bits than those'} of plain DDP"


if __name__ == "__main__":
    main()
