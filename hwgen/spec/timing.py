"""Latencies of the arithmetic units: register stages from operands to result, read by the RTL and by the estimates.

A unit that is given operands before clock edge t shows their result after edge t + latency - 1. Pipelined units take
new operands in every cycle; sequential ones one every ``*_INTERVAL`` cycles. Stages of the functions of table and
polynomial differ, and stand in their rows of `hwgen.spec.operations`.
"""

from typing import Final

ADD_LATENCY: Final = 6
MUL_LATENCY: Final = 6
SELECT_LATENCY: Final = 3

DIVIDE_LATENCY: Final = 30
"""Of division and of square root."""
DIVIDE_INTERVALS: Final = (27, 9, 3, 1)
"""What a division unit may be built for, smallest unit first: operands every so many cycles."""
