"""A rule on a table: which column fills which input, what weighs a row."""
