"""Order codes of ECP5 devices, as nextpnr wants them: LFE5UM5G-85F-8BG756C.

In: a code. Out: size, package and speed grade. It runs no tool.
"""

import re

SIZES = {"LFE5U": ("12", "25", "45", "85"), "LFE5UM": ("25", "45", "85"), "LFE5UM5G": ("25", "45", "85")}
OPTIONS = {"LFE5U": "", "LFE5UM": "um-", "LFE5UM5G": "um5g-"}
PACKAGES = {
    "BG256": "CABGA256",
    "BG381": "CABGA381",
    "BG554": "CABGA554",
    "BG756": "CABGA756",
    "MG285": "CSFBGA285",
    "TG144": "TQFP144",
}
"""What an order code says (FPGA-DS-02012, section 6), and what nextpnr calls it."""

CODE = re.compile(r"(?P<family>LFE5U(?:M|M5G)?)-(?P<size>\d+)F-(?P<grade>[678])(?P<package>[A-Z]+\d+)[CI]")
"""Family, size, speed grade, package, and whether for commercial or industrial temperatures."""


def lattice_part(part: str) -> tuple[str, str, str]:
    """Option for the size, name of the package, and speed grade; ValueError says what a code is."""
    match = CODE.fullmatch(part)
    if match is None or match["size"] not in SIZES[match["family"]] or match["package"] not in PACKAGES:
        raise ValueError(
            "must be a whole order code of an ECP5 such as LFE5U-25F-6BG381C: LFE5U, LFE5UM or LFE5UM5G, a size (12F "
            f"of LFE5U only, 25F, 45F, 85F), a grade (6, 7, 8) with a package ({', '.join(PACKAGES)}), C or I; "
            f"not {part!r}"
        )
    return f"--{OPTIONS[match['family']]}{match['size']}k", PACKAGES[match["package"]], match["grade"]
