"""The demonstration and its data."""
