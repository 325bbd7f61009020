"""Derivatives of values: reverse mode over the operations of a rule, in a form that costs few of them."""

from dsl.semantics.gradient.batches import Batching
from dsl.semantics.gradient.polynomial import Algebra, Polynomial
from dsl.semantics.gradient.reverse import NoDerivative, filled, followed, gradients

__all__ = ["Algebra", "Batching", "NoDerivative", "Polynomial", "filled", "followed", "gradients"]
