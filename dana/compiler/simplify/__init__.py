"""Passes over the graph, each Graph to Graph, each leaving every value's bits as they are."""
