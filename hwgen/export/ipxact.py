"""A board in IP-XACT: IEEE 1685-2009 with AMD's bus definitions, as Vivado reads it, and IEEE 1685-2014.

In: a `MachineConfig`, names. Out: XML. Both have the same ports, buses, registers and files, each element in the order
of the standard's schema; `_of_2014` and the uses of `NEWER` are all in which they differ.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from hwgen.export.address_map import Port, Word, address_map, port_list
from hwgen.spec.aperture import aperture_bytes
from hwgen.spec.config import MachineConfig

VENDOR, LIBRARY, VERSION = "dana", "ip", "1.0"
"""With the name of the top module they identify a board."""

NAMESPACES = {
    2009: ("spirit", "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"),
    2014: ("ipxact", "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"),
}
XILINX = "http://www.xilinx.com"
FAMILIES = (
    *("artixuplus", "kintexuplus", "virtexuplus", "virtexuplusHBM", "zynquplus", "versal"),
    *("spartan7", "artix7", "kintex7", "virtex7", "zynq"),
)
"""As Vivado names them."""

ACCESS = {"r": "read-only", "w": "write-only", "rw": "read-write"}
FILES = "rtl"
VIEW = "synthesis"
READERS = {2009: "xilinx_anylanguagesynthesis", 2014: VIEW}
"""Names of the view: Vivado knows its own."""

KINDS = {"clk": ("clock", "CLK", False), "rst": ("reset", "RST", False), "irq": ("interrupt", "INTERRUPT", True)}
"""Of ports that are no bus of AXI: AMD's definition, its signal, and whether the board drives it."""


def ip_xact(config: MachineConfig, top: str, title: str, sources: Sequence[str], year: int) -> str:
    """The component, in the edition of that year of `NAMESPACES`."""
    return _Writer(year).component(config, top, title, sources)


class _Writer:
    def __init__(self, year: int) -> None:
        self._newer = year == 2014
        self._year = year
        self._prefix, self._namespace = NAMESPACES[year]

    def component(self, config: MachineConfig, top: str, title: str, sources: Sequence[str]) -> str:
        tag, ports = self._tag, port_list(config)
        buses = {name: list(own) for name, own in groupby(ports, lambda port: port.bus) if name}
        root = tag(
            "component",
            *self._identified(top),
            tag(
                "busInterfaces",
                *(self._bus(name, own) for name, own in buses.items()),
                *(self._signal(port, buses) for port in ports if not port.bus),
            ),
            tag(
                "addressSpaces",
                *(
                    tag(
                        "addressSpace",
                        tag("name", name),
                        tag("range", f"{1 << 64:#x}" if self._newer else str(1 << 64)),
                        tag("width", str(next(port.bits for port in own if port.signal == "RDATA"))),
                    )
                    for name, own in buses.items()
                    if name != "s_axil"
                ),
            ),
            tag(
                "memoryMaps",
                tag(
                    "memoryMap",
                    tag("name", "s_axil"),
                    tag(
                        "addressBlock",
                        tag("name", "reg0"),
                        tag("description", _regions(config)),
                        tag("baseAddress", "0"),
                        tag("range", str(aperture_bytes(config))),
                        tag("width", "32"),
                        tag("usage", "register"),
                        *(
                            self._register(f"{block.name}_{word.name}", block.address, word)
                            for block in address_map(config)
                            for word in block.registers
                        ),
                    ),
                ),
            ),
            tag("model", *self._views(top), tag("ports", *map(self._port, ports))),
            tag(
                "fileSets",
                tag(
                    "fileSet",
                    tag("name", FILES),
                    *(tag("file", tag("name", path), tag("fileType", "verilogSource")) for path in sources),
                ),
            ),
            tag("description", title),
            *(() if self._newer else self._of_vivado(top)),
        )
        root.set(f"xmlns:{self._prefix}", self._namespace)
        if not self._newer:
            root.set("xmlns:xilinx", XILINX)
        ElementTree.indent(root)
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'

    def _tag(self, name: str, /, *content: Element | str, **attributes: str) -> Element:
        made = Element(f"{self._prefix}:{name}")
        for key, value in attributes.items():
            made.set(key if self._newer else f"{self._prefix}:{key}", value)
        for part in content:
            if isinstance(part, str):
                made.text = part
            else:
                made.append(part)
        return made

    def _identified(self, name: str) -> Iterator[Element]:
        for key, value in {"vendor": VENDOR, "library": LIBRARY, "name": name, "version": VERSION}.items():
            yield self._tag(key, value)

    def _bus(self, name: str, ports: Sequence[Port]) -> Element:
        """A bus of AXI."""
        if name == "s_axil":
            mode = self._tag("slave", self._tag("memoryMapRef", memoryMapRef=name))
        else:
            mode = self._tag("master", self._tag("addressSpaceRef", addressSpaceRef=name))
        values = {"PROTOCOL": "AXI4LITE" if name == "s_axil" else "AXI4"}
        if name != "s_axil" and "AWADDR" not in (port.signal for port in ports):
            values["READ_WRITE_MODE"] = "READ_ONLY"
        return self._interface(name, "interface", "aximm", mode, {port.signal: port.name for port in ports}, values)

    def _signal(self, port: Port, buses: Sequence[str] | dict[str, list[Port]]) -> Element:
        """A clock, a reset or an interrupt."""
        kind, logical, driven = KINDS[port.name]
        values = {
            "clock": {"ASSOCIATED_BUSIF": ":".join(buses), "ASSOCIATED_RESET": "rst"},
            "reset": {"POLARITY": "ACTIVE_HIGH"},
            "interrupt": {"SENSITIVITY": "LEVEL_HIGH"},
        }[kind]
        mode = self._tag("master" if driven else "slave")
        return self._interface(port.name, "signal", kind, mode, {logical: port.name}, values)

    def _interface(
        self, name: str, library: str, kind: str, mode: Element, signals: dict[str, str], values: dict[str, str]
    ) -> Element:
        tag = self._tag
        definition = {"vendor": "xilinx.com", "library": library, "version": "1.0"}
        maps = tag(
            "portMaps",
            *(
                tag(
                    "portMap",
                    tag("logicalPort", tag("name", logical)),
                    tag("physicalPort", tag("name", physical)),
                )
                for logical, physical in signals.items()
            ),
        )
        abstraction = {**definition, "name": f"{kind}_rtl"}
        if self._newer:
            abstract = tag("abstractionTypes", tag("abstractionType", tag("abstractionRef", **abstraction), maps))
            parts = [abstract, mode]
        else:
            parts = [tag("abstractionType", **abstraction), mode, maps]
        parameters = (
            self._parameter(key, value, f"{name}.{key}".upper().replace(".", "_")) for key, value in values.items()
        )
        bus = tag("busType", **{**definition, "name": kind})
        return tag("busInterface", tag("name", name), bus, *parts, tag("parameters", *parameters))

    def _parameter(self, name: str, value: str, identifier: str) -> Element:
        held = self._tag("value", value)
        if self._newer:
            return self._tag("parameter", self._tag("name", name), held, parameterId=identifier)
        held.set("spirit:id", f"BUSIFPARAM_VALUE.{identifier}")
        return self._tag("parameter", self._tag("name", name), held)

    def _register(self, name: str, base: int, word: Word) -> Element:
        tag = self._tag
        access = ACCESS[word.access]
        return tag(
            "register",
            tag("name", name),
            tag("description", word.text.replace("`", "")),
            tag("addressOffset", f"'h{base + word.address:x}" if self._newer else f"0x{base + word.address:x}"),
            tag("size", str(word.bits)),
            tag("access", access),
            *(
                tag(
                    "field",
                    tag("name", field.name.lower()),
                    tag("bitOffset", str(field.low)),
                    tag("bitWidth", str(field.width)),
                    tag("access", access),
                )
                for field in word.fields
            ),
        )

    def _views(self, top: str) -> list[Element]:
        tag, name = self._tag, READERS[self._year]
        found = [tag("language", "verilog"), tag("moduleName" if self._newer else "modelName", top)]
        found.append(tag("fileSetRef", tag("localName", FILES)))
        if not self._newer:
            where = tag("envIdentifier", ":vivado.xilinx.com:synthesis")
            return [tag("views", tag("view", tag("name", name), where, *found))]
        return [
            tag("views", tag("view", tag("name", name), tag("componentInstantiationRef", "verilog"))),
            tag("instantiations", tag("componentInstantiation", tag("name", "verilog"), *found)),
        ]

    def _port(self, port: Port) -> Element:
        tag = self._tag
        ends = tag("vector", tag("left", str(port.bits - 1)), tag("right", "0"))
        shape = [] if port.bits == 1 else [tag("vectors", ends) if self._newer else ends]
        direction = tag("direction", "in" if port.input else "out")
        return tag("port", tag("name", port.name), tag("wire", direction, *shape))

    def _of_vivado(self, top: str) -> list[Element]:
        """What Vivado's catalogue asks for."""
        families = Element("xilinx:supportedFamilies")
        for family in FAMILIES:
            ElementTree.SubElement(families, "xilinx:family", {"xilinx:lifeCycle": "Beta"}).text = family
        taxonomies = Element("xilinx:taxonomies")
        ElementTree.SubElement(taxonomies, "xilinx:taxonomy").text = "/UserIP"
        shown, revision = Element("xilinx:displayName"), Element("xilinx:coreRevision")
        shown.text, revision.text = top, "1"
        extensions = Element("xilinx:coreExtensions")
        extensions.extend([families, taxonomies, shown, revision])
        name = self._tag("value", f"{top}_v1_0")
        name.set("spirit:resolve", "user")
        name.set("spirit:id", "PARAM_VALUE.Component_Name")
        return [
            self._tag("parameters", self._tag("parameter", self._tag("name", "Component_Name"), name)),
            self._tag("vendorExtensions", extensions),
        ]


def _regions(config: MachineConfig) -> str:
    return "; ".join(f"{block.name} at {block.address:#x}" for block in address_map(config))
