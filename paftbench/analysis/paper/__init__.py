"""The paper's numbers and claims, and ours beside them."""

from paftbench.analysis.paper.figures import draw
from paftbench.analysis.paper.items import ITEMS
from paftbench.analysis.paper.judging import Verdict, verdicts
from paftbench.analysis.paper.text import render

__all__ = ["ITEMS", "Verdict", "draw", "render", "verdicts"]
