"""The modules of generated Verilog: their ports, what they contain, a file for each.

In: Verilog as `hwgen.rtl` writes it. Nothing here understands other Verilog.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter

_END = "endmodule\n"


@dataclass(frozen=True)
class Module:
    """Of a module: its text, the indices of its ports ('' of a single bit), the modules of its instances."""

    text: str
    ports: Mapping[str, str]
    instances: Mapping[str, str]


@cache
def modules(verilog: str) -> dict[str, Module]:
    """All modules by their names, each behind those that it contains."""
    found = {}
    for part in verilog.split(_END)[:-1]:
        declared = re.search(r"^module \\?(\S+?) ?\(", part, re.MULTILINE)
        assert declared is not None, part[:200]
        ports = re.findall(r"^  (?:input|output) (\[\d+:0\])? ?(\w+);", part, re.MULTILINE)
        instances = re.findall(r"^  \\?([\w.$]+) +(\w+) \($", part, re.MULTILINE)
        found[declared[1]] = Module(
            part.lstrip("\n") + _END, {port: bits for bits, port in ports}, {one: module for module, one in instances}
        )
    contents = {name: sorted(set(module.instances.values())) for name, module in found.items()}
    return {name: found[name] for name in TopologicalSorter(contents).static_order()}


def split(verilog: str) -> dict[str, str]:
    """A file for each module, each behind those that it needs; names of files are without `$`."""
    return {f"{name.replace('$', '_')}.v": module.text for name, module in modules(verilog).items()}
