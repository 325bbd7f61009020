"""Which machine a rule and a table want: cycles, resources, and the search for the best machine under a budget."""
