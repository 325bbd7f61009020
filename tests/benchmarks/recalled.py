"""What the paper is remembered to say, and no source at hand confirms: none of it may be printed as the paper's."""

from __future__ import annotations

RECALLED = (1_356_784, 1_242_871, 809_339, 1_027_961, 162_146, 50_784, 3_068, 38_840, 32_124, 25_292)
"""Tuples, pages and megabytes of its data sets."""
RATIOS = (4.6, 4.7, 4.8, 2.3, 10.7, 13.0, 278.0)
"""Speed-ups of its figures."""
