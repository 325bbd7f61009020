"""One page about one run: what was trained, how it went, and what the machine did all the time.

`history` reads the run from the database, `machine` makes its design again, `charts` draws, `page` writes the HTML.
"""
