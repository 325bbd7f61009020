"""One page about one run: how good its model is, what that learnt, what was done to the data; then the machine.

`history` reads the run from the database, `stored` its model, `scores` how good that is; `machine` makes its design
again. `curves` and `charts` draw, `metrics` puts numbers into tables, `page` writes the HTML.
"""
