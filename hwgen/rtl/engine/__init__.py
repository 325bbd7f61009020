"""The execution engine."""
