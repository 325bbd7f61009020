"""Arithmetic units in Amaranth, with the bits of ``hwgen.spec.numerics`` and the latencies of ``hwgen.spec.timing``.

All but division are free-running pipelines, without stall or valid bit: operands are taken in every cycle, what comes
of them is there LATENCY edges later, and who uses it counts cycles. With ``narrow``, products are built for multipliers
of 18 × 18 bits (MULT18X18D) instead of 27 × 18 (DSP48E2): same bits, same latency.
"""
