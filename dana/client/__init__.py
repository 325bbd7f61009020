"""The Python client: `dana.connect` gives its `Connection`."""
