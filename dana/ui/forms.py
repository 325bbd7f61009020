"""The form of a training: its fields come from the options of the client.

In: the fields that a browser sent. Out: the arguments of ``dana_train``; the server checks their values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast, get_args, get_type_hints

from dana.client.options import TrainOptions
from dana.errors import UsageError

FIRST = ("model", "test_size", "epochs")
"""Options that the form shows at once; `features` and `label` have fields of their own."""
CHOSEN = ("features", "label")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An option of a training in the form; ``kind`` is its type in Python."""

    name: str
    kind: object
    text: str

    @property
    def truth(self) -> bool:
        """Whether it is true or false."""
        return self.kind is bool

    def read(self, text: str) -> object:
        """The value of a text that is not empty.

        Raises
        ------
        UsageError
            The text has not the option's type.
        """
        kind = str(self.kind)
        try:
            if self.kind is bool:
                return {"true": True, "false": False}[text]
            if self.kind is int or self.kind is float:
                return self.kind(text)
            if "Mapping" in kind and (text.lstrip().startswith("{") or ("str |" not in kind and "| str" not in kind)):
                return dict(json.loads(text))
        except (KeyError, TypeError, ValueError):
            expected = {bool: "true or false", int: "a whole number", float: "a number"}.get(
                self.kind,  # type: ignore[call-overload]
                'a JSON object such as {"a": 1}',
            )
            raise UsageError(f"{self.name}: {expected} is expected, not {text!r}") from None
        return [one.strip() for one in text.split(",")] if "Sequence" in kind else text


def _fields() -> tuple[Field, ...]:
    hints = get_type_hints(TrainOptions, include_extras=True)
    found = [
        Field(name=name, kind=get_args(hint)[0], text=get_args(hint)[1])
        for name, hint in hints.items()
        if name not in CHOSEN
    ]
    return tuple(sorted(found, key=lambda one: (*FIRST, one.name).index(one.name)))


FIELDS = _fields()


def training(form: Mapping[str, Sequence[str]]) -> tuple[str, str | None, TrainOptions]:
    """Rule, source (None for a query) and options.

    Raises
    ------
    UsageError
        There is no rule, or a text has not its option's type.
    """
    texts = {name: values[0].strip() for name, values in form.items() if values}
    if not texts.get("rule"):
        raise UsageError("choose a rule")
    options = {one.name: one.read(texts[one.name]) for one in FIELDS if texts.get(one.name)}
    if form.get("features"):
        options["features"] = list(form["features"])
    if texts.get("label"):
        options["label"] = texts["label"]
    return texts["rule"], texts.get("source") or None, cast(TrainOptions, options)
