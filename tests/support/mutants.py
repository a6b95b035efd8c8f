"""Broken systems, as plugin files that `--plugin` loads into every process of a sweep."""

from pathlib import Path

LOADED = '''
from dataclasses import dataclass
from paftbench.mitigations.contract import Mitigation


@dataclass(frozen=True, kw_only=True)
class Loaded(Mitigation):
    """A plugin file must define a plugin."""
    name = "loaded"
'''

SOURCES = {
    "averaging disabled": '''
from paftbench.mitigations import averaging


def nothing(self, step, means):
    """The traffic and the records of a synchronisation, without its effect."""
    step.synced = True


averaging.Averaging.receive = nothing
''',
    "momentum not restored": """
from paftbench.training.virtual import Virtual

restore = Virtual.load_state_dict


def forgetful(self, saved):
    restore(self, saved)
    self.optimizer.state.clear()


Virtual.load_state_dict = forgetful
""",
    "divided by W twice": """
from paftbench.ranks.axis import Ranks

Ranks.scale = property(lambda self: 1.0 / self.world_size**2)
""",
    "not divided by W": """
from paftbench.ranks.axis import Ranks

Ranks.scale = property(lambda self: 1.0)
""",
}


def plugin(name: str, folder: Path) -> Path:
    """The file of a broken system."""
    path = folder / f"{name.replace(' ', '_')}.py"
    path.write_text(SOURCES[name] + LOADED)
    return path
