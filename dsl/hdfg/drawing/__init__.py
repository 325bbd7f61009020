"""How a dataflow graph looks to people: a listing for terminals, a picture for notebooks."""
