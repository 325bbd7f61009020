"""The rule language: text to dataflow graph, and what the graph means.

In: rule text. Out: `Rule` with its `hdfg`, or `RuleError` with every error of the text.
Must not: execute rule text, or know of hardware and databases.
"""

from dsl.diagnostics import RuleError
from dsl.frontend.rule import Rule, compile_rule

__all__ = ["Rule", "RuleError", "compile_rule"]
