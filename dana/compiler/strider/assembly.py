"""Lays out a Strider program: labels, a pool of constants, and branches that reach.

In: instructions with symbolic targets. Out: encoded instructions and the %cr registers. It knows the instruction set
and nothing of pages or schemas.
"""

from dataclasses import dataclass
from itertools import accumulate

from hwgen.spec.strider import CONFIGURATION, TEMPORARIES, Control, Fault, Instruction, Opcode

SHORT_RANGE = range(-32, 32)
SPILL = (TEMPORARIES - 2, TEMPORARIES - 1)
"""Temporaries that hold constants for which %cr has no room."""

BRANCHES = (Opcode.BEQ, Opcode.BNE, Opcode.BLT)


@dataclass(slots=True)
class _Item:
    op: Opcode
    fields: tuple[int, int, int]
    target: str | None = None
    far: bool = False

    def size(self) -> int:
        if not self.far:
            return 1
        return 3 if self.op is Opcode.BLT else 2  # blt has no opposite


class Assembly:
    """A program being written."""

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._labels: dict[str, int] = {}
        self._constants: list[int] = []
        self._spilled = 0
        self._fresh = 0

    @property
    def constants(self) -> tuple[int, ...]:
        return tuple(self._constants)

    def emit(self, op: Opcode, a: int = 0, b: int = 0, c: int = 0) -> None:
        self._items.append(_Item(op, (a, b, c)))

    def branch(self, op: Opcode, a: int, b: int, target: str) -> None:
        """beq, bne or blt to a label at any distance."""
        self._items.append(_Item(op, (a, b, 0), target))

    def jump(self, target: str) -> None:
        self._items.append(_Item(Opcode.JMP, (0, 0, 0), target))

    def label(self, name: str) -> str:
        """Name the next instruction."""
        if name in self._labels:
            raise ValueError(f"label {name!r} is placed twice")
        self._labels[name] = len(self._items)
        return name

    def fresh(self, stem: str) -> str:
        """A label that is not in use."""
        self._fresh += 1
        return f"{stem}.{self._fresh}"

    def constant(self, value: int) -> int:
        """A register that holds `value`: one of %cr, or a temporary loaded here and good for the next instruction."""
        value &= 0xFFFFFFFF
        if value in self._constants:
            return TEMPORARIES + self._constants.index(value)
        if len(self._constants) < CONFIGURATION:
            self._constants.append(value)
            return TEMPORARIES + len(self._constants) - 1
        register = SPILL[self._spilled % 2]
        self._spilled += 1
        self._load(register, value)
        return register

    def fail(self, fault: Fault) -> None:
        self.emit(Opcode.CTL, Control.FAIL, fault >> 6, fault & 63)

    def finish(self) -> tuple[Instruction, ...]:
        """Resolve labels, making far branches long, and encode."""
        while True:
            places = self._places()
            grown = False
            for index, item in enumerate(self._items):
                if item.op in BRANCHES and item.target is not None and not item.far:
                    distance = places[self._labels[item.target]] - places[index]
                    # branches count from their own place, in 6 bits of two's complement
                    if distance not in SHORT_RANGE:
                        item.far = grown = True
            # a branch made long moves others apart: again, until none has to be
            if not grown:
                break
        program: list[Instruction] = []
        for index, item in enumerate(self._items):
            target = places[self._labels[item.target]] if item.target is not None else 0
            program += self._encode(item, places[index], target)
        return tuple(program)

    def _places(self) -> list[int]:
        return list(accumulate((item.size() for item in self._items), initial=0))

    @staticmethod
    def _encode(item: _Item, at: int, target: int) -> list[Instruction]:
        a, b, c = item.fields
        # 18 bits of an absolute address: it reaches all of the program memory
        jump = Instruction(Opcode.JMP, target >> 12 & 63, target >> 6 & 63, target & 63)
        if item.op is Opcode.JMP:
            return [jump]
        if item.target is None:
            return [Instruction(item.op, a, b, c)]
        if not item.far:
            return [Instruction(item.op, a, b, (target - at) & 63)]
        if item.op is Opcode.BLT:
            over = at + 3
            skip = Instruction(Opcode.JMP, over >> 12 & 63, over >> 6 & 63, over & 63)
            return [Instruction(Opcode.BLT, a, b, 2), skip, jump]
        opposite = Opcode.BNE if item.op is Opcode.BEQ else Opcode.BEQ
        return [Instruction(opposite, a, b, 2), jump]

    def _load(self, register: int, value: int) -> None:
        """ins, and for more than 12 bits shift by mul and add; the pool always holds 4096 before it is full."""
        if value < 4096:
            self.emit(Opcode.INS, register, value >> 6, value & 63)
            return
        if value >= 1 << 24:
            raise ValueError(f"constant {value:#x} does not fit in 24 bits once %cr is full")
        # `PageWriter` asks for it first, so that it never is among those without room
        scale = TEMPORARIES + self._constants.index(4096)
        other = SPILL[1] if register == SPILL[0] else SPILL[0]
        self.emit(Opcode.INS, other, value >> 18 & 63, value >> 12 & 63)
        self.emit(Opcode.MUL, other, scale, other)
        self.emit(Opcode.INS, register, value >> 6 & 63, value & 63)
        self.emit(Opcode.AD, register, other, register)
