"""Whether the packages `dana`, `dsl` and `hwgen` are this project's: other distributions have such names, too.

In: what Python finds by these names. Out: an error that names the other one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec

PACKAGES = ("dana", "dsl", "hwgen")


def check_places() -> None:
    """Raise an ImportError if `dsl` or `hwgen` is found in another folder than `dana`."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in PACKAGES[1:]:
        spec = find_spec(name)
        found = "nothing" if spec is None else spec.origin or str(spec.submodule_search_locations)
        expected = os.path.join(folder, name, "__init__.py")
        if found != expected and not (os.path.exists(found) and os.path.samefile(found, expected)):
            raise ImportError(
                f"dana needs its own package {name!r}, {expected}, but Python finds {found}: "
                "rename that one, or remove its folder from sys.path",
                name=name,
            )


def foreign_distributions() -> list[str]:
    """Installed distributions other than ours with files in these packages: pip overwrites files without a message."""
    from importlib.metadata import packages_distributions

    owners = packages_distributions()
    return sorted({owner for package in PACKAGES for owner in owners.get(package, ())} - {"dana-db"})


def namesakes() -> list[str]:
    """Installed distributions with the names of these packages; found in milliseconds, unlike those above."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            version(name)
            found.append(name)
    return found


def overwritten(distributions: list[str]) -> str:
    """The message about ``distributions``."""
    names = " ".join(distributions)
    return (
        f"installed in this environment, with packages of the same names as those of dana-db: {names}; "
        f"run pip uninstall {names}, then pip install --force-reinstall --no-deps dana-db, "
        "or use an environment of its own for each"
    )
