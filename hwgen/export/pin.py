"""Gives cells of a netlist their places on the device, for nextpnr: python3 pin.py NETLIST PLAN PINNED.

In: what yosys wrote, and a plan as `floorplan.py` makes it: instances, with places for each type of cell. Out: the
netlist with those places. It comes with each package that has a plan, so it imports nothing else of this project.
"""

import json
import sys
from typing import Any


def pin(netlist: dict[str, Any], plan: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    """The netlist, changed: each instance's cells of a type, in the order of their names, take its places in turn.

    Cells beyond the last place stay free. ValueError where the netlist has no such instance: the plan is another
    machine's. It says which.
    """
    (top,) = (module for module in netlist["modules"].values() if int(module["attributes"].get("top", "0"), 2))
    cells = top["cells"]
    kinds = {kind for types in plan.values() for kind in types}
    pinned = sorted(name for name, cell in cells.items() if cell["type"] in kinds)
    for instance, types in plan.items():
        if not any(name.startswith(f"{instance}.") for name in cells):
            raise ValueError(f"the netlist has no cells of {instance}: the plan is another machine's")
        for kind, places in types.items():
            names = [name for name in pinned if name.startswith(f"{instance}.") and cells[name]["type"] == kind]
            for name, place in zip(names, places, strict=False):
                cells[name]["attributes"]["BEL"] = place
    return netlist


def main() -> None:
    """Run from the command line."""
    source, plan, target = sys.argv[1:]
    with open(source, encoding="utf-8") as netlist, open(plan, encoding="utf-8") as places:
        pinned = pin(json.load(netlist), json.load(places))
    with open(target, "w", encoding="utf-8") as file:
        json.dump(pinned, file)


if __name__ == "__main__":
    main()
