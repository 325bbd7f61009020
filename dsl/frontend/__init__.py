"""The stages put together: rule text to hDFG."""
