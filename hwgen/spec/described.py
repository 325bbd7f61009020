"""Numbers with names, each with the text that documents have of it."""

from enum import IntEnum
from typing import Any, Self


class Described(IntEnum):
    """`MEMBER = number, "text"`, and more columns where a class has some. One without a text is a ValueError."""

    text: str

    def __new__(cls, number: int, *_columns: Any) -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        return member

    # the default is for type checkers, which take a look-up by number for a call of this
    def __init__(self, number: int, text: str = "") -> None:
        if not text:
            raise ValueError(f"each member of {type(self).__name__} must have a text behind it, but {number} has none")
        self.text = text
