"""The unpacker's intake: entries from the queues, in page order, become jobs.

In: the oldest entry of each queue, descriptors from the host. Out: one job after another, checked: a column that
reaches outside its page, has no valid descriptor, or does not come behind the one that it follows, is a job that only
reports a fault.

    take     the entry of the Strider whose page it is
    look up  its descriptor is read
    hold     ... and is in a register
    check    bounds, place of the first byte

The last three are the UNPACK_STAGES stages of `hwgen.spec.cycles`: each holds one entry, which goes on as soon as the
next stage is free.
"""

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hwgen.rtl.access.descriptors import Descriptors, known_layout, watched
from hwgen.rtl.access.layouts import POINTER_BITS, Kind, entry_layout, page_bits, strider_bits
from hwgen.rtl.delay import delayed
from hwgen.rtl.interfaces import FAULT_BITS, image_write
from hwgen.spec.config import MachineConfig
from hwgen.spec.cycles import UNPACK_STAGES
from hwgen.spec.strider import Fault

STAGES = 3
COPIED = ("beats", "single", "element", "group", "step", "spread", "type", "first", "last", "row", "low", "high")
"""What a job says of its column as the descriptor does."""


def job_layout(config: MachineConfig) -> data.StructLayout:
    """What the unpacker does next."""
    known = known_layout(config).members
    return data.StructLayout(
        {
            "fault": 1,  # report it: OUT_OF_PAGE if `outside`, else `code`; and `pointer`
            "outside": 1,
            "code": FAULT_BITS,
            "pointer": POINTER_BITS,
            "end": 1,  # the page is done; if it is no fault either, it is a column
            "strider": strider_bits(config),
            "at": page_bits(config),  # page address from which its first beat reads
            "ahead": page_bits(config),  # a row further
            **{name: known[name] for name in (*COPIED, *watched(config))},
        }
    )


class Intake(wiring.Component):
    """Pipeline of UNPACK_STAGES stages from entries to jobs, which stands still while a job is not taken."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "image": In(image_write(config)),
                "clear": In(1),  # pulse: forget all entries; Strider 0 has the first page
                "oldest": In(data.ArrayLayout(entry_layout(config), config.striders)),  # of each Strider's queue
                "waiting": In(config.striders),  # a bit for each Strider: its queue has an entry
                "take": Out(config.striders),  # a bit for each Strider: the entry is taken
                "job": Out(job_layout(config)),  # moves on in a cycle in which `valid` and `ready` are high
                "valid": Out(1),
                "ready": In(1),
                "takes": In(1),  # what `ready` is, see `unpacker.py`
            }
        )

    def elaborate(self, platform: object) -> Module:
        if UNPACK_STAGES != STAGES:
            raise ValueError(f"intake.py is built for UNPACK_STAGES = {STAGES}")
        config = self._config
        m = Module()
        held = data.StructLayout({"entry": entry_layout(config), "strider": strider_bits(config)})
        stages = [Signal(held, name=f"stage_{k}", reset_less=True) for k in range(STAGES)]
        full = Signal(STAGES)
        free = [Signal(name=f"free_{k}") for k in range(STAGES)]
        # flat, for `ready` comes late: a stage is free if one behind it is empty, or the last job goes
        for k in range(STAGES):
            m.d.comb += free[k].eq(~full[k:].all() | self.ready)

        # --- take
        current = Signal(strider_bits(config))
        turn = Signal(config.striders, init=1)  # `current`, one bit for each Strider
        entry = Signal(entry_layout(config))
        taking = Signal()
        takes = ~full.all() | self.takes  # `free` of the first stage
        m.d.comb += [
            entry.eq(Array(self.oldest[s] for s in range(config.striders))[current]),
            taking.eq((self.waiting & turn).any() & takes),
            self.take.eq(self.waiting & turn & takes.replicate(config.striders)),
        ]
        with m.If(taking & (entry.kind == Kind.END)):
            m.d.sync += [
                current.eq(Mux(turn[-1], 0, current + 1)),
                turn.eq(turn.rotate_left(1)),
            ]

        # --- stages
        m.submodules.descriptors = descriptors = Descriptors(config)
        wiring.connect(m, wiring.flipped(self.image), descriptors.image)
        m.d.comb += [
            descriptors.number.eq(stages[0].entry.number),
            descriptors.step.eq(free[1]),
        ]
        for k, stage in enumerate(stages):
            with m.If(free[k]):
                m.d.sync += full[k].eq(full[k - 1] if k else taking)
                if k:
                    m.d.sync += stage.eq(stages[k - 1])
                else:
                    m.d.sync += [stage.entry.eq(entry), stage.strider.eq(current)]
        # a bit more than a number has: what nothing follows, an epoch's start and the last descriptor, is no number
        following = Signal(len(stages[1].entry.number) + 1, init=-1)
        with m.If(free[2]):
            known = delayed(m, descriptors.known, 1, name="known")
            # the column's number is the one behind that of the column before it
            in_turn = delayed(m, stages[1].entry.number == following, 1, name="in_turn")
            with m.If(full[1] & (stages[1].entry.kind == Kind.COLUMN)):
                m.d.sync += following.eq(stages[1].entry.number + 1)
        m.d.comb += self.valid.eq(full[2])
        self._check(m, stages[2], known, in_turn)

        with m.If(self.clear):
            m.d.sync += [full.eq(0), current.eq(0), turn.eq(1), following.eq(-1)]
        return m

    def _check(self, m: Module, stage: data.View, known: data.View, in_turn: Value) -> None:
        entry, job = stage.entry, self.job
        column = entry.kind == Kind.COLUMN
        unusable = column & known.unusable
        astray = column & known.follows & ~in_turn
        outside = Signal()
        m.d.comb += outside.eq(
            column & (entry.beyond | (~known.unusable & (known.never | (entry.address > known.limit))))
        )
        m.d.comb += [
            job.fault.eq((entry.kind == Kind.FAULT) | unusable | outside | astray),
            job.outside.eq(outside),
            job.code.eq(Mux(unusable, Fault.BAD_INSTRUCTION, Mux(astray, Fault.TUPLE_PARTS, entry.number))),
            job.pointer.eq(entry.pointer),
            job.end.eq(entry.kind == Kind.END),
            job.strider.eq(stage.strider),
            # the first beat begins before the column, where the first lane of its group would be
            job.at.eq(entry.address - known.back),
            job.ahead.eq(entry.address + known.ahead),
        ]
        m.d.comb += [job[name].eq(known[name]) for name in (*COPIED, *watched(self._config))]
