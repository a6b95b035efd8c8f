"""The pytest plugin: fixture `faulty_ranks`, and no silent pass for a test that asked for it.

pytest imports this module at every start of every project in the environment, so it must import nothing heavy.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from paftbench.testing import FaultyRanks

_MADE = pytest.StashKey[list["FaultyRanks"]]()


@pytest.fixture
def faulty_ranks(request: pytest.FixtureRequest) -> "Callable[..., FaultyRanks]":
    """Ranks that train your own model and loop with faults and mitigations: `faulty_ranks(world_size=4)`.

    `ranks_as="threads"` (default) or `"torchrun"`, `limit_s=120`; then `.run(train, build, faults=..., ...)`.
    A test that runs nothing, or faults that never struck, fails.
    """
    made: list[FaultyRanks] = []
    request.node.stash[_MADE] = made  # a test that is run again starts afresh

    def make(*args: int, **options: object) -> "FaultyRanks":
        from paftbench.testing import FaultyRanks

        ranks = FaultyRanks(*args, **options)  # type: ignore[arg-type]
        made.append(ranks)
        return ranks

    return make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """After a test that would pass: fail it where what it ran under `faulty_ranks` proves nothing."""
    result = yield
    made = item.stash.get(_MADE, None)
    if made is not None:
        if not made:
            pytest.fail("faulty_ranks was asked for, but no ranks were made: call faulty_ranks(world_size=4)", False)
        for ranks in made:
            reason = ranks.unproven()
            if reason is not None:
                pytest.fail(reason, False)
    return result
