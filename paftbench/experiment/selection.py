"""`-k EXPR`: pytest's boolean expressions over trial names, case ignored."""

import re
from collections.abc import Callable
from typing import Final

from paftbench.errors import Refused

_TOKEN = re.compile(r"\s*(\(|\)|[^\s()]+)")
MOST_TOKENS: Final = 100  # each may stand inside all others
Predicate = Callable[[str], bool]


def parse_selection(expression: str) -> Predicate:
    """A predicate on names from words joined by `and`, `or`, `not` and parentheses; `ValueError` where it is none."""
    tokens = _TOKEN.findall(expression)
    if not tokens:
        raise Refused("-k: the expression is empty")
    if len(tokens) > MOST_TOKENS:
        raise Refused(f"-k: an expression has at most {MOST_TOKENS} words and parentheses, got {len(tokens)}")
    parser = _Parser(tokens, expression)
    predicate = parser.either()
    if parser.tokens:
        raise Refused(f"-k {expression!r}: unexpected {parser.tokens[0]!r}")
    return lambda name: predicate(name.lower())


class _Parser:
    """Recursive descent: either := both (or both)*; both := negated (and negated)*."""

    def __init__(self, tokens: list[str], expression: str) -> None:
        self.tokens = tokens
        self.expression = expression

    def either(self) -> Predicate:
        parts = [self.both()]
        while self._accept("or"):
            parts.append(self.both())
        return lambda name: any(part(name) for part in parts)

    def both(self) -> Predicate:
        parts = [self.negated()]
        while self._accept("and"):
            parts.append(self.negated())
        return lambda name: all(part(name) for part in parts)

    def negated(self) -> Predicate:
        if self._accept("not"):
            inner = self.negated()
            return lambda name: not inner(name)
        return self.word()

    def word(self) -> Predicate:
        if self._accept("("):
            inner = self.either()
            if not self._accept(")"):
                raise Refused(f"-k {self.expression!r}: a parenthesis is not closed")
            return inner
        if not self.tokens or self.tokens[0] in (")", "and", "or"):
            got = repr(self.tokens[0]) if self.tokens else "the end"
            raise Refused(f"-k {self.expression!r}: expected a part of a name, got {got}")
        word = self.tokens.pop(0).lower()
        return lambda name: word in name

    def _accept(self, token: str) -> bool:
        if self.tokens and self.tokens[0] == token:
            self.tokens.pop(0)
            return True
        return False
