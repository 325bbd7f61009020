"""The hierarchical dataflow graph: data type, builder, verifier, text form and interpreter."""
