"""Texts of the largest size that do their worst: tests count the calls that they take, bench the seconds."""

from __future__ import annotations

from tests.dsl.rules import HEAD

BODY = HEAD + "w = dana.model([n])\nrule = dana.algo(w, x, y)\n"
"""A rule but for its updates."""

WRONG = [
    "(" * 60_000,
    ")" * 60_000,
    "[" * 30_000 + "]" * 30_000,
    "(\n" * 30_000,
    "-" * 60_000 + "1",
    "x = " + "a + " * 15_000 + "a",
    "x = " + "a < " * 15_000 + "a",
    "f" + "()" * 30_000,
    "f" + "[0]" * 20_000,
    "a" + ".b" * 30_000,
    "a = " * 16_000 + "1",
    "x = [" + "1, " * 20_000 + "]",
    '"' * 65_001,
    "'''" * 20_000 + "'",
    "\\\n" * 30_000,
    ";" * 60_000,
    "@" * 60_000,
    "$\n" * 30_000,
    "1" * 60_000,
    "a" * 60_000,
    "\ud800" * 10,
    "\x00" * 1000,
    "if a:\n" * 10_000,
    "".join(" " * i + "for i in j:\n" for i in range(300)),
    "".join(f"def f{i}(a):\n    return f{i - 1}(a) + f{i - 1}(a)\n" for i in range(1, 1000)) + "f999(1)",
    "\n".join(f"def f{i}(a=1): return g(" for i in range(2000)),
    "import dana\n" + "n = dana.dim()\n" + "m = n + 1\n" + "m = m * m\n" * 1000,
    "x = 9007199254740992\n" + "x = x * x\n" * 1000,
    "x = range(90000)\nfor i in x:\n  for j in x:\n    pass",
    "for i in range(90000): a, b = i, i",
    "for i in range(900):\n    x = range(90000)\n",
    "x = range(90000)\n" * 3000,
    "\n".join(f"a{i} = 1" for i in range(5000)) + "\n" + "\n".join(f"c = ab{i}x" for i in range(60)),
    "def f(" + ", ".join(f"a{i}" for i in range(5000)) + "): return a1\nf()",
]
"""Texts that end in errors."""

LONG = {
    "statements": BODY + "".join(f"a{i} = w * x + {i}\n" for i in range(2900)) + "rule.setModel(w - y * x)\n",
    "loop": BODY + "e = y\nfor i in range(9900):\n    e = -e\nrule.setModel(w - e * x)\n",
    "calls": BODY
    + "def f(a, b=1):\n    return a + b\ne = "
    + " + ".join(["f(y)"] * 3000)
    + "\nrule.setModel(w - e * x)\n",
    "list": BODY + "l = [" + "y, " * 20_000 + "y]\nfor i in l:\n    e = i\nrule.setModel(w - e * x)\n",
    "models": "import dana\n"
    + "".join(f"w{i} = dana.model([3])\n" for i in range(800))
    + f"x = dana.input([3])\nr = dana.algo({', '.join(f'w{i}' for i in range(800))}, x)\n"
    + "".join(f"r.setModel(w{i}, x)\n" for i in range(800)),
}
"""Rules without an error, as long as they may be."""
