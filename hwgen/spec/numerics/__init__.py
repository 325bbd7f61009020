"""The arithmetic of the machine, one meaning everywhere: binary32, flushed, each operation rounded on its own.

In and out: float32 NumPy arrays. The C header ``native/numerics.h`` and the units of ``hwgen.rtl.arith`` give the same
bits; docs/arithmetic.md has the algorithms and their errors. This module's names satisfy the interpreter's Arithmetic
protocol; nothing here may know of the language or of Amaranth.
"""

from hwgen.spec.numerics.binary32 import absolute as absolute
from hwgen.spec.numerics.binary32 import add as add
from hwgen.spec.numerics.binary32 import div as div
from hwgen.spec.numerics.binary32 import eq as eq
from hwgen.spec.numerics.binary32 import flush as flush
from hwgen.spec.numerics.binary32 import ge as ge
from hwgen.spec.numerics.binary32 import gt as gt
from hwgen.spec.numerics.binary32 import le as le
from hwgen.spec.numerics.binary32 import lt as lt
from hwgen.spec.numerics.binary32 import maximum as maximum
from hwgen.spec.numerics.binary32 import minimum as minimum
from hwgen.spec.numerics.binary32 import mul as mul
from hwgen.spec.numerics.binary32 import neg as neg
from hwgen.spec.numerics.binary32 import sqrt as sqrt
from hwgen.spec.numerics.binary32 import sub as sub
from hwgen.spec.numerics.binary32 import where as where
from hwgen.spec.numerics.conversion import from_bool as from_bool
from hwgen.spec.numerics.conversion import from_float32 as from_float32
from hwgen.spec.numerics.conversion import from_float64 as from_float64
from hwgen.spec.numerics.conversion import from_int16 as from_int16
from hwgen.spec.numerics.conversion import from_int32 as from_int32
from hwgen.spec.numerics.conversion import from_int64 as from_int64
from hwgen.spec.numerics.functions import exp as exp
from hwgen.spec.numerics.functions import gaussian as gaussian
from hwgen.spec.numerics.functions import log as log
from hwgen.spec.numerics.functions import sigmoid as sigmoid
from hwgen.spec.numerics.functions import tanh as tanh
from hwgen.spec.numerics.reduction import IDENTITIES as IDENTITIES
from hwgen.spec.numerics.reduction import fold as fold
from hwgen.spec.numerics.reduction import tree as tree
