"""The pytest plugin: fixture `faulty_ranks`, and no silent pass for a test that asked for it.

pytest imports this module at every start of every project in the environment, so it must import nothing heavy.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from paftbench.testing import FaultyRanks

_MADE = pytest.StashKey[list["FaultyRanks"]]()


@pytest.fixture
def faulty_ranks(request: pytest.FixtureRequest) -> "Iterator[Callable[..., FaultyRanks]]":
    """Ranks that train your own model and loop with faults and mitigations: `faulty_ranks(world_size=4)`.

    `ranks_as="threads"` (default) or `"torchrun"`, `limit_s=120`; then `.run(train, build, faults=..., ...)`.
    A test that runs nothing, or faults that never struck, fails.
    """
    made: list[FaultyRanks] = []
    request.node.stash[_MADE] = made

    def make(*args: int, **options: object) -> "FaultyRanks":
        from paftbench.testing import FaultyRanks

        ranks = FaultyRanks(*args, **options)  # type: ignore[arg-type]
        made.append(ranks)
        return ranks

    yield make
    # The session keeps its tests to the end: not every rank's parameters too, nor what a test that is run again made.
    del request.node.stash[_MADE]


@pytest.hookimpl(trylast=True)  # a wrapper is made differently by old and new pytests, and all must start with this
def pytest_runtest_call(item: pytest.Item) -> None:
    """After a test that did not raise: fail it where what it ran under `faulty_ranks` proves nothing."""
    made = item.stash.get(_MADE, None)
    if made is not None:
        if not made:
            pytest.fail("faulty_ranks was asked for, but no ranks were made: call faulty_ranks(world_size=4)", False)
        for ranks in made:
            reason = ranks.unproven()
            if reason is not None:
                pytest.fail(reason, False)
