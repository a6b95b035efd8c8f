"""paftbench: distributed training under silent gradient-aggregation errors, measured."""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_LAZY = {
    "attach": ("paftbench.attachment.facade", "attach"),
    "Fault": ("paftbench.specs", "fault"),
    "Mitigation": ("paftbench.specs", "mitigation"),
    "load_results": ("paftbench.analysis.frame", "load_results"),
}

__all__ = ["Fault", "Mitigation", "__version__", "attach", "load_results"]


def __getattr__(name: str) -> Any:
    """Public names are imported on first use: importing the package alone stays fast."""
    if name not in _LAZY:
        raise AttributeError(f"module 'paftbench' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)
