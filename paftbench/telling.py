"""An exception in one line, for people: its type and its message, never one without the other."""

import traceback
from collections.abc import Iterator

LONGEST = 500  # characters; the log has the rest
_MEMBERS = 3  # of a group that are told


def reason_of(error: BaseException) -> str:
    """`Type: message` in one line: notes in brackets, members of a group after it, then what it came from."""
    told = _alone(error)
    causes = list(chain_of(error))[1:]
    if causes:
        told += f" (from {_alone(causes[0])})"
    return told if len(told) <= LONGEST else told[: LONGEST - 3] + "..."


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """The exception, then those it came from, as a traceback would show them."""
    link: BaseException | None = error
    seen = set[int]()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _alone(error: BaseException) -> str:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    told = f"{name}: {_message(error)}".removesuffix(": ")
    notes = [_flat(note) for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
    told += f" [{'; '.join(notes)}]" if notes else ""
    if isinstance(error, BaseExceptionGroup):
        members = [_alone(member) for member in error.exceptions[:_MEMBERS]]
        more = [f"{len(error.exceptions) - _MEMBERS} more"] if len(error.exceptions) > _MEMBERS else []
        told += f": {'; '.join([*members, *more])}"
    return told


def _message(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        # Its text alone says neither file nor line where the message has none.
        return _flat(traceback.format_exception_only(error)[-1].partition(": ")[2]) + _place(error)
    try:
        return _flat(str(error))
    except Exception:
        return "(its message cannot be read)"


def _place(error: SyntaxError) -> str:
    return f" ({error.filename}, line {error.lineno})" if error.filename else ""


def _flat(text: str) -> str:
    return " ".join(text.split())
