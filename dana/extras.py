"""The command that installs an optional part of the package.

In: an extra of pyproject.toml. Out: the command, with the packages by name: it works for a checkout, and without an
index that has this package. Must not: load the packages.
"""

from __future__ import annotations

import shlex
from importlib.metadata import requires


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra."""
    listed = [one.partition(";") for one in requires("dana-db") or ()]
    # a marker such as extra == "rtl"; split so that "rtl" is not found within another name
    packages = [package.strip() for package, _, marker in listed if extra in shlex.split(marker.replace("==", " "))]
    return shlex.join(["pip", "install", *packages])
