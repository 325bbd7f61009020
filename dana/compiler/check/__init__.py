"""A finished program: whether it is legal, whether the machine has what it uses, what it takes."""
