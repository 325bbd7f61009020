"""Mutation testing: chosen faults of C, SQL and the hardware (`faults.toml`), and mutmut for Python (`mutants`)."""
