"""The paper's numbers and claims, and ours beside them."""

from paftbench.paper.figures import draw
from paftbench.paper.items import ITEMS
from paftbench.paper.judging import Judgement, verdicts
from paftbench.paper.text import render

__all__ = ["ITEMS", "Judgement", "draw", "render", "verdicts"]
