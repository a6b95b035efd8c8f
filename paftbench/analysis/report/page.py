"""The page put together: sections into the template, style and script into the page."""

import hashlib
from base64 import b64encode
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from paftbench import __version__
from paftbench.analysis.report.failures import failures
from paftbench.analysis.report.images import images
from paftbench.analysis.report.origin import commands, environments
from paftbench.analysis.report.summary import summary
from paftbench.analysis.report.trials import trial_table
from paftbench.analysis.runs import load
from paftbench.analysis.table import columns, notes, rows
from paftbench.printable import printable
from paftbench.store.files import check_inside, write_text


def write(directory: Path, to: Path | None = None, about: str = "") -> Path:
    """Write the report of a sweep or trial directory to `to` (DIR/report.html); errors as `runs.load`.

    `about` is the experiment's own sentence, which records do not have. The old file stays until the new one is whole.
    """
    if to is None:
        to = directory / "report.html"
        check_inside(to, directory)
    write_text(to, page(directory, about))
    return to


def page(directory: Path, about: str = "") -> str:
    """The report as HTML: text from records is escaped, and the browser is told to run our script and load nothing."""
    sweep = load(directory)
    found = rows(directory)
    style, script = (_resource(name).strip() for name in ("style.css", "script.js"))
    # trim_blocks: the template's own lines leave no blank ones. StrictUndefined: a misspelt name is an error.
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    text = template.from_string(_resource("template.html")).render(
        version=__version__,
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}",
        style=Markup(style),
        script=Markup(script),
        summary=summary(sweep, about),
        images=images(sweep),
        cells={heading: texts for heading, texts in columns(found).items() if {*texts} != {"-"}},
        words=("grid", "cell", "outcomes"),
        sections=[row.grid for row in found],
        notes=notes(found),
        trials=trial_table(sweep),
        failures=failures(sweep),
        environments=environments(sweep.selected),
        commands=commands(sweep.selected),
    )
    return printable(text)


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
