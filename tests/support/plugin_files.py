"""Plugins of files are registered for the whole process."""

from collections.abc import Iterator
from contextlib import contextmanager

from paftbench import plugins


@contextmanager
def plugins_kept() -> Iterator[None]:
    """Afterwards those plugins are known that were known before."""
    before = {kind: dict(found) for kind, found in plugins.from_files.items()}
    try:
        yield
    finally:
        for kind, found in before.items():
            plugins.from_files[kind].clear()
            plugins.from_files[kind].update(found)
