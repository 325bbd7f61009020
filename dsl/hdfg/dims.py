"""Extents of axes: whole numbers, or polynomials in dims that are bound at train time.

In: `int`s and the names of `dana.dim()` variables. Out: `Dim = int | DimExpr`, kept in a canonical form so
that `n * k` and `k * n` are equal and hash alike. Must not: guess a value; a dim has none until it is bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Monomial = tuple[str, ...]
"""Names multiplied together, sorted; `()` is the constant term."""


@dataclass(frozen=True, slots=True)
class DimExpr:
    """A polynomial with whole coefficients, holding at least one dim.

    Parameters
    ----------
    terms
        Pairs (names, coefficient), sorted by falling degree and then by name, no coefficient zero.
    """

    terms: tuple[tuple[Monomial, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The dims it depends on, sorted."""
        return tuple(sorted({name for monomial, _ in self.terms for name in monomial}))

    def evaluate(self, dims: Mapping[str, int]) -> int:
        """Return the extent under `dims`.

        Raises
        ------
        KeyError
            If a dim has no value.
        """
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for name in monomial:
                product *= dims[name]
            total += product
        return total

    def solve(self, extent: int, known: Mapping[str, int]) -> tuple[str, int | None] | None:
        """Find the extent of its one unknown.

        Returns None when it has none or several or is not linear; (name, None) when no whole positive number fits.
        """
        unknown = [name for name in self.names if name not in known]
        if len(unknown) != 1:
            return None
        name = unknown[0]
        slope = 0
        offset = 0
        for monomial, coefficient in self.terms:
            if monomial.count(name) > 1:
                return None
            product = coefficient
            for factor in monomial:
                product *= 1 if factor == name else known[factor]
            if name in monomial:
                slope += product
            else:
                offset += product
        # terms cancel under some extents of the others, such as n * k - 2 * n with k = 2: then each n fits
        if slope == 0:
            return None
        quotient, remainder = divmod(extent - offset, slope)
        # an axis has at least one element
        return name, (quotient if remainder == 0 and quotient > 0 else None)

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self.terms:
            magnitude = abs(coefficient)
            # a coefficient of 1 is written where no name follows it
            factors = [str(magnitude)] if magnitude != 1 or not monomial else []
            term = "*".join(factors + list(monomial))
            if text:
                text += f"{'+' if coefficient > 0 else '-'}{term}"
            else:
                text = term if coefficient > 0 else f"-{term}"
        return text


Dim = int | DimExpr
Shape = tuple[Dim, ...]


def symbol(name: str) -> DimExpr:
    """Return the dim called `name`."""
    return DimExpr((((name,), 1),))


def add(left: Dim, right: Dim) -> Dim:
    """Return left + right."""
    return _collect([*_terms(left), *_terms(right)])


def subtract(left: Dim, right: Dim) -> Dim:
    """Return left - right."""
    return _collect([*_terms(left), *((m, -c) for m, c in _terms(right))])


def multiply(left: Dim, right: Dim) -> Dim:
    """Return left * right."""
    # sorted names make n * k and k * n one monomial, hence one extent
    return _collect((tuple(sorted(lm + rm)), lc * rc) for lm, lc in _terms(left) for rm, rc in _terms(right))


def names_of(dim: Dim) -> tuple[str, ...]:
    """Return the dims that `dim` depends on, sorted."""
    return dim.names if isinstance(dim, DimExpr) else ()


def evaluate(dim: Dim, dims: Mapping[str, int]) -> int:
    """Return the extent of `dim` under `dims` (`KeyError` if a dim has no value)."""
    return dim.evaluate(dims) if isinstance(dim, DimExpr) else dim


def shape_text(shape: Shape) -> str:
    """Write a shape as the language does: `[n, 3]`, and `scalar` for no axis."""
    return f"[{', '.join(str(dim) for dim in shape)}]" if shape else "scalar"


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    return dim.terms if isinstance(dim, DimExpr) else (((), dim),)


def _collect(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    totals: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        totals[monomial] = totals.get(monomial, 0) + coefficient
    kept = {monomial: coefficient for monomial, coefficient in totals.items() if coefficient}
    # any() looks at the keys: the constant term's, (), is the only false one
    if not any(kept):
        return kept.get((), 0)
    return DimExpr(tuple(sorted(kept.items(), key=lambda term: (-len(term[0]), term[0]))))
