"""The paper's evaluation from this project's machine: what is computed, measured here, or quoted, cell by cell."""
