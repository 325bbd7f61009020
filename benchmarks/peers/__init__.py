"""DAnA and its alternatives train on the same rows, one after another, in one run."""
