"""The arithmetic of the machine, one meaning everywhere: binary32, flushed, each operation rounded on its own.

In and out: float32 NumPy arrays. The C header ``native/numerics.h`` and the units of ``hwgen.rtl.arith`` give the same
bits; docs/arithmetic.md has the algorithms and their errors. This module's names satisfy the interpreter's Arithmetic
protocol; nothing here may know of the language or of Amaranth.
"""

from hwgen.spec.numerics.binary32 import *
from hwgen.spec.numerics.conversion import *
from hwgen.spec.numerics.functions import *
from hwgen.spec.numerics.reduction import *
