"""An exception in one line says what kind it is and what it said."""

import pytest

from paftbench.telling import LONGEST, reason_of


class OwnError(Exception):
    """A user's."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def noted() -> Exception:
    error = ValueError("odd")
    error.add_note("in batch\n7")
    return error


def chained(*, hidden: bool) -> Exception:
    try:
        try:
            raise KeyError("lost")
        except KeyError as error:
            raise ValueError("bad batch") from (None if hidden else error)
    except ValueError as error:
        return error


def unparsable() -> Exception:
    try:
        compile("x = (\n", "user.py", "exec")
    except SyntaxError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FileNotFoundError(2, "No such file or directory", "x"),
         "FileNotFoundError: [Errno 2] No such file or directory: 'x'"),
        (ValueError("first\n  second\n\n/a/bare/name.txt"), "ValueError: first second /a/bare/name.txt"),
        (KeyError("lost"), "KeyError: 'lost'"),
        (AssertionError(), "AssertionError"),
        (OwnError("mine"), f"{__name__}.OwnError: mine"),
        (noted(), "ValueError: odd [in batch 7]"),
        (chained(hidden=False), "ValueError: bad batch (from KeyError: 'lost')"),
        (chained(hidden=True), "ValueError: bad batch"),
        (ExceptionGroup("two", [ValueError("a\nb"), OSError("c")]),
         "ExceptionGroup: two (2 sub-exceptions): ValueError: a b; OSError: c"),
        (unparsable(), "SyntaxError: '(' was never closed (user.py, line 1)"),
        (Mute(), f"{__name__}.Mute: (its message cannot be read)"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_type_and_message_stand_in_one_line(error: Exception, told: str) -> None:
    assert reason_of(error) == told


def test_a_long_message_is_cut() -> None:
    assert len(reason_of(ValueError("x" * 10_000))) == LONGEST
