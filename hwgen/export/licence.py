"""The licence of each file of a package, in the form of SPDX and REUSE.

In: files by their paths. Out: the same with a line that names the licence in files with comments, and REUSE.toml for
all others. A rule belongs to its author and gets no licence.
"""

from collections.abc import Collection
from pathlib import PurePosixPath

LICENCE = "Apache-2.0"
"""Of this project, and of all that it writes into a package."""

TAG = "SPDX-License-Identifier"
REUSE = "REUSE.toml"

_LINE = "# {}"
COMMENTS = {
    **dict.fromkeys((".v", ".vlt", ".h", ".c", ".rdl", ".dtsi"), "// {}"),
    ".gtkw": "[*] {}",
    **dict.fromkeys((".md", ".xml"), "<!-- {} -->"),
    **dict.fromkeys((".py", ".sh", ".ys", ".tcl", ".xdc", ".sdc", ".lpf", ".toml", ".core"), _LINE),
}
"""Of files that can hold a comment, by their suffix, how one is written."""


FIRST = ("#!", "<?xml", "CAPI=2:")
"""What a first line must stay that begins with it."""


def licensed(name: str, text: str) -> str:
    """The text of a file with its licence, or as it is where no comment can be."""
    if not _holds(name):
        return text
    line = COMMENTS[PurePosixPath(name).suffix].format(f"{TAG}: {LICENCE}") + "\n"
    if text.startswith(FIRST):
        first, _, rest = text.partition("\n")
        return f"{first}\n{line}{rest}"
    return line + text


def reuse(names: Collection[str]) -> str:
    """REUSE.toml: the licence of files that cannot say it themselves."""
    ours = sorted(name for name in names if not _holds(name) and not _is_rule(name))
    parts = [
        "version = 1",
        *_annotation(ours, LICENCE),
        "",
        "# the rule is its author's",
        *_annotation(sorted(filter(_is_rule, names)), "NOASSERTION"),
    ]
    return "\n".join(parts) + "\n"


def _annotation(names: Collection[str], licence: str) -> list[str]:
    listed = [f'    "{name}",' for name in names]
    return ["", "[[annotations]]", "path = [", *listed, "]", f'{TAG} = "{licence}"']


def _is_rule(name: str) -> bool:
    return PurePosixPath(name).parts[0] == "rule" and name.endswith(".py")


def _holds(name: str) -> bool:
    return PurePosixPath(name).suffix in COMMENTS and not _is_rule(name)
