"""Faults for the machine's contract: the Bundle, the texts of programs, the arithmetic in Python and in C."""

from __future__ import annotations

from benchmarks.faults.fault import faults

SPEC = (
    *faults(
        "hwgen/spec",
        "tests/hwgen/text/test_legal.py",
        ("legal.py", "if group < 1 or group & (group - 1):", "if group < 1:", "a group of three"),
        ("legal.py", "if 2 * group * tuple_rows > config.tuple_depth:", "if False:", "two halves too many"),
        (
            "legal.py",
            "if last >= bundle.tuple_rows:",
            "if last > bundle.tuple_rows:",
            "a column a row beyond its tuple",
        ),
        (
            "legal.py",
            "not in bundle.sections and bundle.batch > round_tuples:",
            "in ():",
            "several rounds without merge",
        ),
        ("legal.py", "1 << i.distance < _partners", "1 << i.distance <= _partners", "a partner too far"),
        ("legal.py", "lambda i, at: i.tail <= at", "lambda i, at: True or at", "a tail beyond the lanes"),
        ("legal.py", "i.outer <= at.config.index_depth", "True", "more entries than the index file has"),
        ("legal.py", "elif issue < set_at + INDEX_LATENCY:", "elif False:", "entries that are used too early"),
    ),
    *faults(
        "hwgen/spec",
        "tests/hwgen/text/test_bundle.py",
        ("bundle.py", "if version != VERSION:", "if version > VERSION:", "a Bundle of an older version"),
        (
            "bundle.py",
            'if struct.unpack("<I", data[-4:])[0] != zlib.crc32(data[:-4]):',
            "if False:",
            "a damaged Bundle",
        ),
        (
            "bundle.py",
            "if symbol.kind == kind and (name is None or symbol.name == name):",
            "if symbol.kind == kind:",
            "any name",
        ),
        (
            "bundle.py",
            "return leading * -(-self.shape[-1] // lanes)",
            "return -(-leading * self.shape[-1] // lanes)",
            "matrices without gaps",
        ),
        (
            "bundle.py",
            "return array.reshape(-1, 1).repeat(lanes, axis=1)",
            "return array.reshape(-1, 1) * np.eye(1, lanes, dtype=np.float32)",
            "one lane",
        ),
        ("config.py", "or isinstance(value, bool):", "or False:", "true threads"),
        ("columns.py", "-(-(self.lane + self.count) // lanes)", "-(-self.count // lanes)", "the first row's lanes"),
        ("fields.py", "if not 0 <= value < 1 << field.width:", "if not 0 <= value:", "values wider than their fields"),
    ),
    *faults(
        "hwgen/spec",
        "tests/hwgen/numerics/test_numerics.py",
        (
            "numerics/binary32.py",
            "TINY_BELOW = 2.0**-126 - 2.0**-151",
            "TINY_BELOW = 2.0**-126",
            "tiny before rounding",
        ),
        ("numerics/binary32.py", "_beyond(_LEAST, at_once)", "_beyond(_SUBNORMAL, at_once)", "products rounded up"),
        ("numerics/binary32.py", "np.float32(2.0**-100)", "np.float32(2.0**-103)", "sums that take in subnormals"),
        ("numerics/binary32.py", "equal = p & q if largest", "equal = p | q if largest", "max(+0, -0) is -0"),
        ("numerics/binary32.py", "& _MAGNITUDE) != _ZERO", ") != _ZERO", "-0.0 is true"),
        ("numerics/binary32.py", "np.where(np.isnan(x) | np.isnan(y), _NAN, ordered)", "ordered", "max of a NaN"),
        ("numerics/binary32.py", "flush(_floats(_bits(flush(x)) ^ _SIGN))", "_floats(_bits(flush(x)) ^ _SIGN)", "-NaN"),
        ("numerics/reduction.py", "half = 1 << ((n - 1).bit_length() - 1)", "half = n // 2", "halves"),
        (
            "numerics/reduction.py",
            "np.concatenate([joined, level[-1:]])",
            "np.concatenate([level[-1:], joined])",
            "odd one first",
        ),
        (
            "numerics/conversion.py",
            "dtype=dtype).astype(np.float32)",
            "dtype=dtype).astype(np.float64).astype(np.float32)",
            "int8 rounded twice",
        ),
    ),
    *faults(
        "hwgen/spec/numerics",
        "tests/hwgen/numerics/test_native.py",
        (
            "functions.py",
            "y = np.where(exponent >= 132, _ONE, y)",
            "y = np.where(exponent >= 131, _ONE, y)",
            "sigmoid from 16",
        ),
        ("functions.py", "np.where(negative, ~r, r)", "np.where(negative, -r, r)", "exp of negatives"),
        ("functions.py", "(upper * lower << 7)", "(upper * lower << 6)", "half the middle product"),
        ("functions.py", "minus = (e < 0) | ((e == 0) & (m < 0))", "minus = (e < 0)", "logarithms just below 1"),
        (
            "native/numerics.h",
            "return dn_pick(a, b, a < b, dn_bits(a) | dn_bits(b));",
            "return dn_pick(a, b, a < b, dn_bits(a));",
            "min(+0, -0) in C",
        ),
        ("native/numerics.h", "coarse * DN_LOG2E + (1u << 22)", "coarse * DN_LOG2E", "exponents rounded down in C"),
        ("native/numerics.h", "by = by > 63 ? 63 : by;", "", "shifts beyond the word in C"),
        ("native/numerics.h", "bits = dn_select(dn_negative(x), DN_QUIET_NAN, bits);", "", "log of negatives in C"),
    ),
    *faults(
        "hwgen/spec",
        "tests/hwgen/text/test_engine_text.py tests/hwgen/text/test_strider_text.py tests/hwgen/text/test_load.py",
        ("strider.py", "word >> 12 & 63, word >> 6 & 63", "word >> 6 & 63, word >> 12 & 63", "fields a and b swapped"),
        ("strider.py", "if not 0 <= value < 64:", "if not 0 <= value < 65:", "seven bits in six"),
        (
            "load.py",
            "(instruction.inner - 1) * instruction.dst_inner",
            "instruction.inner * instruction.dst_inner",
            "a row more",
        ),
        ("load.py", "map(max, self, other)", "self", "what another Bundle filled stays"),
    ),
)
