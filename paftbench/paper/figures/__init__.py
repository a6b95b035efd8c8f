"""Ours and theirs side by side: a figure per item of the paper, by its kind."""

import importlib
from pathlib import Path

from paftbench.analysis.figures.saving import METADATA, save
from paftbench.analysis.runs import load
from paftbench.errors import Refused
from paftbench.paper.items import item_of
from paftbench.paper.judging import SCALES
from paftbench.paper.table_text import table_text
from paftbench.store.files import check_inside, write_text

_MODULES = {"table": "dots", "curves": "curves", "divergence": "drift", "overhead": "cost"}


def draw(item: str, directory: Path, *, scale: str, format: str = "png") -> list[Path]:
    """Draw an item of the paper beside ours into DIR/figures, and for a table its numbers as text; returns the paths.

    `directory` holds the item's trials, `scale` is what they ran at. `ValueError` for an unknown item, scale or format
    and where nothing has finished, `LookupError` where there are no trials.
    """
    import matplotlib

    from paftbench.analysis.figures.style import RC

    own = item_of(item)
    if scale not in SCALES:
        raise Refused(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    if format not in METADATA:
        raise Refused(f"format must be one of {', '.join(METADATA)}, got {format!r}")
    sweep = load(Path(directory))
    folder = Path(directory) / "figures"
    check_inside(folder, Path(directory))
    folder.mkdir(exist_ok=True)
    with matplotlib.rc_context(RC):
        module = importlib.import_module(f"{__name__}.{_MODULES[own.kind]}")
        picture = module.figure(own, sweep, scale)
        path = save(picture, folder / f"{own.name}.{format}", format)
    if own.table is None:
        return [path]
    beside = folder / f"{own.name}.txt"
    write_text(beside, table_text(own, sweep) + "\n", durable=False)
    return [path, beside]
