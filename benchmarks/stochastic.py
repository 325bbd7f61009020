"""The rules that a comparison with stochastic gradient descent trains.

In: the name of a rule of the library. Out: its text, or that of its stochastic form if the rule is solved.
Must not: know which rules are solved.
"""

from __future__ import annotations

from dana import rules
from dana.server.places import STOCHASTIC


def text(rule: str) -> str:
    """Text of a rule that trains by stochastic gradient descent, in batches of 64.

    Raises
    ------
    UsageError
        There is no such rule.
    """
    stochastic = STOCHASTIC / f"{rule}_sgd.py"
    return stochastic.read_text(encoding="utf-8") if stochastic.exists() else rules.text(rule)
