"""How readers call and draw plugins, found by entry point like the plugins themselves; nothing here imports torch.

A distribution with a mitigation of its own may say how it looks: an entry point in the group `paftbench.looks` with the
plugin's name and a `Look` in a module that imports nothing heavy. One that says nothing is called by its name, stands
after those that do, and gets a colour that no other in the figure has.
"""

from paftbench.looks.look import COLOURS, Look, find_look, unclaimed

__all__ = ["COLOURS", "Look", "find_look", "unclaimed"]
