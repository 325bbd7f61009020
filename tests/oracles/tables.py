"""Random rules with tables, each with what it means written out: tuple by tuple, row by row.

In: a source of random numbers. Out: a rule's text, and a training of it in scalars of NumPy that follows
docs/language.md. Shares nothing with the compiler: a rule is made of parts, each a line of text beside the arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import numpy.typing as npt

from tests.dsl.reference import add, div, larger, mul

Floats = npt.NDArray[np.float32]
Tuple = dict[str, Floats]
"""Columns and values of a tuple by name."""


def each(function: Callable[[np.float32, np.float32], np.float32], a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """Element by element."""
    left, right = np.broadcast_arrays(np.float32(a), np.float32(b))
    found = [function(x, y) for x, y in zip(left.ravel(), right.ravel(), strict=True)]
    return np.array(found, np.float32).reshape(left.shape)


def plus(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    return each(add, a, b)


def times(*factors: npt.ArrayLike) -> Floats:
    return reduce(lambda a, b: each(mul, a, b), factors[1:], np.float32(factors[0]))  # type: ignore[arg-type,return-value]


def folded(rows: Sequence[npt.ArrayLike]) -> Floats:
    """Along an axis: with h the largest power of two below n, element j takes in element j + h."""
    found = [np.float32(row) for row in rows]
    while len(found) > 1:
        h = 1 << (len(found) - 1).bit_length() - 1
        for j in range(len(found) - h):
            found[j] = plus(found[j], found[j + h])  # type: ignore[call-overload]
        del found[h:]
    return found[0]  # type: ignore[return-value]


def joined(values: Sequence[Floats], function: Callable[[np.float32, np.float32], np.float32] = add) -> Floats:
    """Over a batch: the tree of adjacent pairs."""
    found = list(values)
    while len(found) > 1:
        pairs = [each(function, *found[k : k + 2]) if len(found) > k + 1 else found[k] for k in range(0, len(found), 2)]
        found = pairs
    return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What a tuple writes: rows of a table, by numbers, and the values."""

    text: str
    table: str
    rows: Callable[[Tuple], list[int]]
    values: Callable[[Tuple], list[Floats]]
    adds: bool


@dataclass(slots=True, kw_only=True)
class TableRule:
    """A rule.

    Attributes
    ----------
    later
        How a batch's additions are joined, "+" or "mean"; None: each tuple's writes are there for the next one.
    numbers
        By column, how many rows there are to choose of.
    """

    source: str
    tables: dict[str, tuple[int, ...]]
    numbers: dict[str, int]
    f: int
    batch: int
    later: str | None
    merges: bool
    terms: list[Callable[[Tuple, Mapping[str, Floats]], Floats]]
    writes: list[Write]
    epochs: int = 2
    names: tuple[str, ...] = field(default=("mean", "steep", "seen"))

    def columns(self, rng: random.Random, count: int) -> dict[str, Floats]:
        """A table's columns; numbers meet often, weights are 0 now and then."""
        draw: dict[str, list[object]] = {name: [] for name in ("i", "j", "c", "v", "y", "weight")}
        for _ in range(count):
            draw["i"].append(rng.randrange(self.numbers["i"]))
            draw["j"].append(rng.randrange(self.numbers["j"]))
            draw["c"].append([rng.randrange(self.numbers["c"]) for _ in range(self.f)])
            draw["v"].append([rng.choice([1.0, 0.0, -0.5, rng.gauss(0, 1)]) for _ in range(self.f)])
            draw["y"].append(rng.gauss(0, 1))
            draw["weight"].append(rng.choice([0.0, 1.0, 1.0, 2.0]))
        return {name: np.array(values, np.float32) for name, values in draw.items()}

    def start(self, rng: random.Random) -> dict[str, Floats]:
        """Random models."""
        numbers = np.random.default_rng(rng.randrange(1 << 30))
        models = {name: np.float32(numbers.normal(0, 0.5, shape)) for name, shape in self.tables.items()}
        k = self.tables["A"][1]
        return models | {"mean": np.float32(0.25), "steep": np.zeros(k, np.float32), "seen": np.float32(-1)}  # type: ignore[dict-item]

    def train(
        self, columns: Mapping[str, Floats], models: Mapping[str, Floats]
    ) -> tuple[dict[str, Floats], list[float]]:
        """The models after all epochs, and their mean losses."""
        state = {name: np.array(model, np.float32) for name, model in models.items()}
        count, losses = len(columns["y"]), []
        for _ in range(self.epochs):
            total = errors = np.float32(0)
            for first in range(0, count, self.batch):
                loss = self._batch(
                    [{n: c[t] for n, c in columns.items()} for t in range(first, min(first + self.batch, count))], state
                )
                after = add(total, loss)
                errors, total = add(errors, add(loss, -add(after, -total))), after
            losses.append(float(np.float64(add(total, errors))) / count)
        return state, losses

    def _batch(self, tuples: list[Tuple], state: dict[str, Floats]) -> np.float32:
        waiting: list[tuple[str, int, Floats]] = []
        for row in tuples:
            self._compute(row, state)
            # all are known before the first is written
            written = [(w, w.rows(row), [np.array(v) for v in w.values(row)]) for w in self.writes]
            for write, rows, values in written:
                for number, value in zip(rows, values, strict=True):
                    if self.later is not None:
                        waiting.append((write.table, number, value))
                    else:
                        table = state[write.table]
                        table[number] = plus(table[number], value) if write.adds else value
        share = div(np.float32(1), np.float32(len(tuples)))
        for table, number, value in waiting:
            part = times(value, share) if self.later == "mean" else value
            state[table][number] = plus(state[table][number], part)
        if self.merges:
            error = times(joined([row["e"] for row in tuples]), share)
            steep = joined([times(row["e"], row["A[i]"]) for row in tuples])
            most = joined([row["S[i]"] for row in tuples], larger)
            state["mean"] = plus(state["mean"], -times(0.125, error))
            state["steep"] = plus(times(0.5, state["steep"]), times(0.01, steep))
            state["seen"] = each(larger, state["seen"], most)
        return np.float32(joined([times(row["e"], row["e"]) for row in tuples]))

    def _compute(self, row: Tuple, state: Mapping[str, Floats]) -> None:
        i, j = int(row["i"]), int(row["j"])
        row["A[i]"], row["D[j]"], row["S[i]"] = (state[t][n].copy() for t, n in (("A", i), ("D", j), ("S", i)))
        row["A[0]"] = state["A"][0].copy()
        row["D[c]"] = np.array([state["D"][int(n)] for n in row["c"]])
        p = state["mean"]
        for term in self.terms:
            p = plus(p, term(row, state))
        row["e"] = times(row["weight"], plus(p, -row["y"]))
        row["step"] = times(-0.25, row["e"], row["A[i]"])


def table_rule(
    rng: random.Random,
    *,
    batches: Sequence[int] = (1, 2, 3, 4, 7),
    widths: Sequence[int] = (1, 2, 5, 9),
    serial: Sequence[int] = (2, 3, 7),
    weighted: bool = True,
) -> TableRule:
    """A rule of three tables, A and D of vectors and S of scalars, with a few ways to read and write each.

    Parameters
    ----------
    batches
        For what is joined behind a batch.
    widths
        Numbers of a row.
    serial
        Batches whose tuples see each other's rows.
    weighted
        Whether rows have weights.
    """
    k, f = rng.choice(widths), rng.choice([1, 2, 3])
    a, d = rng.choice([1, 2, 5]), rng.choice([2, 3, 6])
    tables: dict[str, tuple[int, ...]] = {"A": (a, k), "D": (d, k), "S": (a,)}
    batch = rng.choice(batches)
    later = rng.choice([None, None, "+", "mean"])
    merges = rng.random() < 0.6
    if later is None:
        batch = rng.choice(serial) if merges and serial else 1
    more = "" if later is None else f', {batch}, "{later}"'

    texts, terms = _terms(rng)
    writes = _writes(rng, later is None, more, f)
    lines = [
        "import dana",
        f"A = dana.table([{a}, {k}], init=dana.normal(0, 0.5))",
        f"D = dana.table([{d}, {k}], init=dana.normal(0, 0.5))",
        f"S = dana.table([{a}], init=dana.normal(0, 0.5))",
        f"mean, steep, seen = dana.model(), dana.model([{k}]), dana.model(init=-1)",
        f"i, j, c, v = dana.input(), dana.input(), dana.input([{f}]), dana.input([{f}])",
        f"y, weight = dana.output(), {'dana.weight()' if weighted else '1'}",
        f"tables = dana.algo(A, D, S, mean, steep, seen, i, j, c, v, y{', weight' if weighted else ''})",
        f"p = {' + '.join(['mean', *texts])}",
        "e = weight * (p - y)",
        "step = -0.25 * e * A[i]",
        *(write.text for write in writes),
    ]
    if merges:
        lines += [
            f'tables.setModel(mean, mean - 0.125 * tables.merge(e, {batch}, "mean"))',
            f'tables.setModel(steep, 0.5 * steep + 0.01 * tables.merge(e * A[i], {batch}, "+"))',
            f'tables.setModel(seen, dana.max(seen, tables.merge(S[i], {batch}, "max")))',
        ]
    lines += ["tables.setLoss(e * e)", "tables.setPrediction(p)", "tables.setEpochs(2)"]
    return TableRule(
        source="\n".join(lines) + "\n",
        tables=tables,
        numbers={"i": a, "j": d, "c": d},
        f=f,
        batch=batch,
        later=later,
        merges=merges,
        terms=terms,
        writes=writes,
    )


def _terms(rng: random.Random) -> tuple[list[str], list[Callable[[Tuple, Mapping[str, Floats]], Floats]]]:
    known: list[tuple[str, Callable[[Tuple, Mapping[str, Floats]], Floats]]] = [
        ("S[i]", lambda row, state: row["S[i]"]),
        ("dana.sigma(A[i] * D[j], 1)", lambda row, state: folded(times(row["A[i]"], row["D[j]"]))),
        (
            "dana.sigma(A[i] * dana.sigma(D[c], 1), 1)",
            lambda row, state: folded(times(row["A[i]"], folded(row["D[c]"]))),
        ),
        ("dana.sigma(A[0], 1)", lambda row, state: folded(row["A[0]"])),
    ]
    chosen = rng.sample(known, rng.randint(1, len(known)))
    return [text for text, _ in chosen], [term for _, term in chosen]


def _writes(rng: random.Random, at_once: bool, more: str, f: int) -> list[Write]:
    def one(table: str, name: str, index: str, delta: str, value: Callable[[Tuple], Floats]) -> Write:
        def rows(row: Tuple) -> list[int]:
            return [0 if index == "0" else int(row[index])]

        if at_once and rng.random() < 0.5:
            text = f"tables.setModel({name}, {name} + {delta})"
            return Write(
                text=text, table=table, rows=rows, values=lambda row: [plus(row[name], value(row))], adds=False
            )
        text = f"tables.addRows({name}, {delta}{more})"
        return Write(text=text, table=table, rows=rows, values=lambda row: [value(row)], adds=True)

    def numbers(row: Tuple) -> list[int]:
        return [int(n) for n in row["c"]]

    known = [
        one("A", "A[i]", "i", "-0.25 * e * D[j]", lambda row: times(-0.25, row["e"], row["D[j]"])),
        one("D", "D[j]", "j", "step", lambda row: row["step"]),
        one("S", "S[i]", "i", "0.125 * e", lambda row: times(0.125, row["e"])),
        one("A", "A[0]", "0", "0.0625 * D[j]", lambda row: times(0.0625, row["D[j]"])),
        Write(
            text=f"tables.addRows(D[c], dana.expand(v, 2) * step{more})",
            table="D",
            rows=numbers,
            values=lambda row: [times(v, row["step"]) for v in row["v"]],
            adds=True,
        ),
    ]
    if at_once:
        known.append(
            Write(
                text=f"tables.setModel(D[c], [{', '.join(f'0.75 * D[c][{n}] + step' for n in range(f))}])",
                table="D",
                rows=numbers,
                values=lambda row: [plus(times(0.75, old), row["step"]) for old in row["D[c]"]],
                adds=False,
            )
        )
    return rng.sample(known, rng.randint(1, len(known)))
