"""An HTML report on a run: metrics, coefficients and preprocessing of its model, then the machine.

`history` reads the run from the database, `stored` its model, `scores` its metrics; `machine` compiles its design
again. `curves` and `charts` draw, `metrics` makes tables, `page` writes the HTML.
"""
