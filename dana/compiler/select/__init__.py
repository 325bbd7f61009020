"""Nodes of the graph become vector operations over buffers."""
