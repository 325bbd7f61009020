"""Checked program to hDFG."""

from dsl.lower.lower import lower

__all__ = ["lower"]
