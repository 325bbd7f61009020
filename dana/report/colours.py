"""The colours of all drawings, in light pages; each has one meaning."""

LINE = "#3b6ea5"
"""The training."""

OTHER = "#e08a2e"
"""Rows for validation, or a second model."""

PAPER = "#ffffff"
TEXT = "#222233"
LABEL = "#334455"
EDGE = "#667788"
"""Axes and limits."""

GRID = "#e3e8ee"
FAINT = "#eef2f6"
