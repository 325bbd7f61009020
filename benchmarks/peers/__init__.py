"""Everybody beside it: the same rows to DAnA and to what a user would pick instead, in turn, in one run."""
