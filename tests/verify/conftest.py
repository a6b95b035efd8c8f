"""Every promise is tried in processes of its own; here they are forked from a warm server."""

from collections.abc import Iterator

import pytest
from support.warm import standing_in

from paftbench.cli import verify
from paftbench.verify import processes


@pytest.fixture(autouse=True)
def warm(request: pytest.FixtureRequest) -> Iterator[None]:
    if "HashesItsName" in request.node.name:  # forks have one hash() of a text
        yield
        return
    with standing_in(verify, processes):
        yield
