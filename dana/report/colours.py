"""The colours of all drawings, those of light pages in ``style.css``; each has one meaning."""

LINE = "#3b6ea5"
"""What a page is about: the training; DAnA among its peers."""

OTHER = "#c26a14"
"""What it is compared with: rows for validation, a second model, a peer; the estimate below a roofline."""

PAPER = "#ffffff"
TEXT = "#222233"
LABEL = "#334455"
EDGE = "#566675"
"""Axes and limits."""

GRID = "#e3e8ee"
FAINT = "#eef2f6"
