"""Where a fault can strike."""

from enum import StrEnum
from typing import Final


class Site(StrEnum):
    """Where in a step a fault strikes, in the order a step passes them."""

    CONTRIBUTION = "contribution"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    RESULT = "result"
    PARAMETER = "parameter"
    OPTIMIZER_STATE = "optimizer_state"
    SYNC = "sync"


GRADIENT_SITES: Final = frozenset({Site.CONTRIBUTION, Site.RESULT})
MEMORY_SITES: Final = frozenset({Site.PARAMETER, Site.OPTIMIZER_STATE})
BUILT_SITES: Final = GRADIENT_SITES | MEMORY_SITES
