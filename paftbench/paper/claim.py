"""A claim of the paper that runs of any size can be held against."""

from dataclasses import dataclass
from typing import Any, Literal

Expect = Literal["more", "less", "none"]
Statistic = Literal["accuracy", "loss", "overhead", "period", "growth", "degree", "constant", "arithmetic"]
Where = tuple[tuple[str, Any], ...]
QUALITY: tuple[Statistic, ...] = ("accuracy", "loss")
DEGREE = "faults.noise.degree"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A difference `left - right` with a sign; both are mitigation labels, `right` empty for a plain number.

    `expect` is the sign that the paper gives it, none where its own two numbers are closer than `margin`. `where` holds
    fields of the trials compared, `versus` those in which the right side differs. `paper` are the paper's numbers for
    both sides. A difference of quality is a gain: of accuracy in %, or a loss in nats that was saved. Overheads are in
    % of plain DDP's step, periods in steps, growth in powers of ten. `wrong`: known not to hold as printed, `note` says
    why.
    """

    id: str
    item: str
    text: str
    statistic: Statistic
    left: str
    right: str = ""
    where: Where = ()
    versus: Where = ()
    paper: tuple[float | None, float | None] = (None, None)
    expect: Expect
    margin: float = 0.0
    wrong: bool = False
    note: str = ""

    @property
    def difference(self) -> float | None:
        """The paper's difference; None where it prints no numbers."""
        left, right = self.paper
        if left is None or right is None:
            return None
        return right - left if self.statistic == "loss" else left - right


def degree_text(degree: float) -> str:
    """1e-4, 1e-2, 0.1, 1."""
    if degree >= 0.1:
        return f"{degree:g}"
    mantissa, power = f"{degree:e}".split("e")
    return f"{float(mantissa):g}e{int(power)}"


def at_text(degree: float, theirs: float) -> str:
    """A degree of ours, and the one of the paper's that it stands for, where it is another."""
    own = degree_text(degree)
    return own if degree == theirs else f"{own} for their {degree_text(theirs)}"


def key(*parts: str) -> str:
    """An id without spaces."""
    return "/".join(part.replace(", ", "/").replace(" ", "_") for part in parts)
