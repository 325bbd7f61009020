"""The register map in SystemRDL 2.0, for tools that generate headers, documents and models from it.

In: a `MachineConfig`. Out: SystemRDL.
"""

from hwgen.export.address_map import Block, Word, address_map
from hwgen.spec.aperture import aperture_bytes
from hwgen.spec.config import MachineConfig

COLUMNS = 110
"""Of a line."""


def system_rdl(config: MachineConfig, name: str) -> str:
    """An addrmap `name`: a regfile for each region of registers, a memory for each of the others."""
    lines = [
        "// Register map of a board; generated. Byte addresses, relative to the AXI4-Lite slave.",
        f"addrmap {name} {{",
        '  name = "DAnA board";',
        "  littleendian;",
        "  default regwidth = 32;",
        "  default accesswidth = 32;",
    ]
    for block in address_map(config):
        lines += _registers(block) if block.registers else _memory(block)
    # the aperture of the slave: a map ends with it
    return "\n".join([*lines, f"}};  // {aperture_bytes(config):#x} bytes", ""])


def _registers(block: Block) -> list[str]:
    lines = ["", "  regfile {", *_described(block.text, 4)]
    for word in block.registers:
        lines += _register(word)
    return [*lines, f"  }} {block.name} @ {block.address:#x};"]


def _register(word: Word) -> list[str]:
    read = word.access != "w"
    lines = ["", "    reg {", *_described(word.text, 6)]
    if word.bits != 32:
        lines.append(f"      regwidth = {word.bits};")
    for field in word.fields:
        lines.append(
            f"      field {{ sw = {word.access}; hw = {'rw' if read else 'r'}; }} "
            f"{field.name.lower()}[{field.low + field.width - 1}:{field.low}];"
        )
    return [*lines, f"    }} {word.name} @ {word.address:#x};"]


def _memory(block: Block) -> list[str]:
    return [
        "",
        "  external mem {",
        *_described(block.text, 4),
        f"    mementries = {block.words};",
        "    memwidth = 32;",
        f"    sw = {block.access};",
        f"  }} {block.name} @ {block.address:#x};",
    ]


def _described(text: str, indent: int) -> list[str]:
    """The property, over several lines where it is long: a string may hold line breaks."""
    lines, line = [], " " * indent + 'desc = "'
    for word in text.replace("`", "").replace('"', '\\"').split():
        if len(line) + len(word) > COLUMNS:
            lines.append(line.rstrip())
            line = " " * (indent + 2)
        line += word + " "
    return [*lines, line.rstrip() + '";']
