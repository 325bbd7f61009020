"""The compiler: a rule's graph, a table's schema and a machine to a Bundle.

In: what `dsl` made of a rule, what `dana.storage` knows of a table. Out: `hwgen.spec.bundle.Bundle`. See README.md.
"""

from dana.compiler.binding.columns import Binding, bind
from dana.compiler.compile import compile_bundle, compile_engine

__all__ = ["Binding", "bind", "compile_bundle", "compile_engine"]
