"""Arithmetic units in Amaranth, with the bits of ``hwgen.spec.numerics`` and the latencies of ``hwgen.spec.timing``."""
