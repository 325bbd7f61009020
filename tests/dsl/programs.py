"""Random rules that are right by construction: text whose every expression has the shape that its place needs.

Out: a hypothesis strategy of rule texts with vectors, matrices, several models, merges, functions and loops. The
compiler's and simulator's tests may draw from it too; `axes=1` keeps to vectors and scalars.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from dsl.semantics.composed import COMPOSED
from dsl.semantics.library import BINARY_OPS, UNARY_OPS

SCALAR = ""
UNARY = (*UNARY_OPS, *COMPOSED)
SIGNS = ("+", "-", "*", "/", "<", ">", "<=", ">=", "==")
CONSTANTS = ("0", "1", "-2", "0.5", "0.125", "-1e-3", "3e38", "1e-38", "7")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """Names in force, by shape ("" for a scalar, "n", "k", "kn"), and the functions of one value."""

    names: dict[str, tuple[str, ...]]
    unary: tuple[str, ...] = UNARY

    def of(self, shape: str) -> tuple[str, ...]:
        return self.names.get(shape, ())


@st.composite
def expressions(draw: st.DrawFn, kinds: Kinds, shape: str, depth: int) -> str:
    """Draw an expression of a shape."""
    ways = ["leaf"]
    if depth > 0:
        ways += ["sign", "sign", "call", "negative", "choice", "group" if _groups(kinds, shape) else "sign"]
        ways += ["outer"] if shape == "kn" else []
    way = draw(st.sampled_from(ways))
    inner = depth - 1
    if way == "leaf":
        known = kinds.of(shape)
        return draw(st.sampled_from(known + CONSTANTS[:4] if known else CONSTANTS))
    if way == "negative":
        return f"-({draw(expressions(kinds, shape, inner))})"
    if way == "call":
        return f"dana.{draw(st.sampled_from(kinds.unary))}({draw(expressions(kinds, shape, inner))})"
    if way == "outer":
        left, right = draw(expressions(kinds, "k", inner)), draw(expressions(kinds, "n", inner))
        return f"dana.expand({_anchored(left, kinds.of('k')[0])}, 2) * ({_anchored(right, kinds.of('n')[0])})"
    if way == "group":
        source, axis = draw(st.sampled_from(_groups(kinds, shape)))
        name = draw(st.sampled_from(kinds.of(source)))
        function = draw(st.sampled_from(["sigma", "sigma", "pi", "norm", "amax", "amin", "argmax", "argmin"]))
        return f"dana.{function}({name} * ({draw(expressions(kinds, source, inner))}), {axis})"
    pair = [draw(expressions(kinds, part, inner)) for part in (shape, draw(st.sampled_from(_narrower(shape))))]
    left, right = draw(st.permutations(pair))
    if way == "choice":
        function = draw(st.sampled_from([*BINARY_OPS, "where"]))
        condition = f"{draw(expressions(kinds, SCALAR, 0))} > 0, " if function == "where" else ""
        return f"dana.{function}({condition}{left}, {right})"
    return f"({left}) {draw(st.sampled_from(SIGNS))} ({right})"


def _groups(kinds: Kinds, shape: str) -> list[tuple[str, int]]:
    sources = {SCALAR: [("n", 1), ("k", 1)], "k": [("kn", 2)], "n": [("kn", 1)]}.get(shape, [])
    return [(source, axis) for source, axis in sources if kinds.of(source)]


def _narrower(shape: str) -> list[str]:
    """Shapes that broadcast to `shape`."""
    return {"": [""], "n": ["n", ""], "k": ["k", ""], "kn": ["kn", "n", ""]}[shape]


@st.composite
def rules(draw: st.DrawFn, *, axes: int = 2, depth: int = 3) -> str:
    """Draw a rule text; its one dim is called n, if it has one."""
    symbolic = draw(st.booleans())
    n = draw(st.integers(1, 9))
    lines = ["import dana", "n = dana.dim()" if symbolic else f"n = {n}", f"k = {draw(st.integers(1, 4))}"]
    models = {"w": "n", "b": SCALAR, **({"v": "k", "M": "kn"} if axes > 1 else {})}
    lines += [
        f"{name} = dana.model({_shape_text(shape)}, init={draw(st.sampled_from(STARTS))})"
        for name, shape in models.items()
    ]
    lines += ["x = dana.input([n])", "y = dana.output()", "lr = dana.meta(0.125)"]
    lines += ["z = dana.input([k])"] if axes > 1 else []
    lines.append(f"rule = dana.algo({', '.join([*models, 'x', *(['z'] if axes > 1 else []), 'y'])})")
    names = {SCALAR: ["b", "y", "lr"], "n": ["w", "x"]}
    if axes > 1:
        names |= {"k": ["v", "z"], "kn": ["M"]}
    shapes = sorted(names)
    for i in range(draw(st.integers(0, 3))):
        shape = draw(st.sampled_from(shapes))
        lines.append(f"t{i} = {_anchored(draw(expressions(_kinds(names), shape, depth)), names[shape][0])}")
        names[shape].append(f"t{i}")
    loss = draw(expressions(_kinds(names), SCALAR, depth))
    after = {shape: [name for name in listed if name in (*models, "lr")] for shape, listed in names.items()}
    if draw(st.booleans()):
        size = draw(st.sampled_from(["1", "2", "3", "4", "7", "dana.all"]))
        for i in range(draw(st.integers(1, 2))):
            shape = draw(st.sampled_from(shapes))
            value = _anchored(draw(expressions(_kinds(names), shape, depth)), names[shape][0])
            sign = draw(st.sampled_from(["+", "+", "*", "max", "min"]))
            lines.append(f'g{i} = rule.merge({value}, {size}, "{sign}")')
            after[shape].append(f"g{i}")
            total = {SCALAR: f"g{i}", "kn": f"dana.sigma(dana.sigma(g{i}, 2), 1)"}.get(shape, f"dana.sigma(g{i}, 1)")
        if size != "dana.all" and draw(st.booleans()):  # the batch's values in its rows again
            again = {key: [*old, *(one for one in after[key] if one[0] == "g")] for key, old in names.items()}
            shape = draw(st.sampled_from(shapes))
            value = _anchored(draw(expressions(_kinds(again), shape, depth)), names[shape][0])
            lines += [
                f"u = {value} + 0 * y",
                f'h = rule.merge(u, {size}, "{draw(st.sampled_from(["+", "*", "max"]))}")',
            ]
            after[shape].append("h")
            loss += " + u" if shape == SCALAR else ""
        lines.append(f"rule.setConvergence({total} < 0.5)")
        batch_names = after
    else:
        batch_names = names
    for name in draw(st.lists(st.sampled_from(sorted(models)), min_size=1, unique=True)):
        value = draw(expressions(_kinds(batch_names), models[name], depth))
        lines.append(f"rule.setModel({name}, {value})")
    lines.append(f"rule.setLoss({loss})")
    if batch_names is names and draw(st.booleans()):
        lines.append(f"rule.setConvergence(({draw(expressions(_kinds(batch_names), SCALAR, depth))}) < 0.5)")
    return "\n".join(lines) + "\n"


STARTS = ("0", "0.5", "dana.uniform(-1, 1)", "dana.normal(0, 0.5, seed=2)")


def _kinds(names: dict[str, list[str]]) -> Kinds:
    return Kinds(names={shape: tuple(listed) for shape, listed in names.items()})


def _shape_text(shape: str) -> str:
    return f"[{', '.join(shape)}]"


def _anchored(expression: str, name: str) -> str:
    """Return the expression with the full shape of `name`, even if it is a number."""
    return f"({expression}) + 0 * {name}"
