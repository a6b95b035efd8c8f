"""What ends a run of ranks that did not finish."""


class RankError(RuntimeError):
    """A rank raised; its exception is the cause, or, where it was in another process, stands in the message."""

    def __init__(self, rank: int, world_size: int, progress: str, error: BaseException | str) -> None:
        if isinstance(error, BaseException):
            error = f"{type(error).__name__}: {error}"
        super().__init__(f"rank {rank} of {world_size} failed {progress}: {error}")
        self.rank = rank


class RanksStuck(RuntimeError):
    """Ranks wait for each other without end, or too long; says where each one stands."""

    def __init__(self, why: str, stands: str) -> None:
        super().__init__(f"{why}; where each stands:\n{stands}")
