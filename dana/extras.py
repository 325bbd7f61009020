"""What is to be installed for a part of the package that is optional.

In: an extra of pyproject.toml. Out: the command, with the extra's packages by name: so it works beside a checkout, and
where no index has this package. Must not: load what it names.
"""

from __future__ import annotations

import shlex
from importlib.metadata import requires


def install_command(extra: str) -> str:
    """What installs the packages of an extra, wherever this package came from."""
    listed = [one.partition(";") for one in requires("dana-db") or ()]
    packages = [package.strip() for package, _, marker in listed if extra in shlex.split(marker.replace("==", " "))]
    return shlex.join(["pip", "install", *packages])
