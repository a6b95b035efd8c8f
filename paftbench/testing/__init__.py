"""Tests of a user's own training under faults: ranks in threads or processes, and what may be claimed of a run.

With pytest use the fixture `faulty_ranks`; elsewhere `FaultyRanks` does the same.
"""

from paftbench.testing.errors import RankError, RanksStuck
from paftbench.testing.faulty_ranks import FaultyRanks
from paftbench.testing.run import Training
from paftbench.testing.sample import Trainings

__all__ = ["FaultyRanks", "RankError", "RanksStuck", "Training", "Trainings"]
