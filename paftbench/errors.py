"""Whose an error is: the user's is `Refused`; the training's is a result; any other is paftbench's own."""


class Refused(ValueError):
    """What the user asked for cannot be done: one line that names the field, its meaning and the value got; exit 2."""


class Missing(Refused, LookupError):
    """Something that the user named is not there."""
