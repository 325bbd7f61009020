"""Meaning of a rule text: names, kinds, arguments, shapes; functions and loops unrolled."""
