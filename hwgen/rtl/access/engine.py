"""The access engine: pages in, tuples out.

In: what `hwgen.rtl.interfaces.access_engine` says. It places the parts and joins them: loader, page store, Striders
with their queues, intake, unpacker. Timing and meaning are those of `docs/machine.md`, sections 4 and 5.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from hwgen.rtl.access.buffers import PageStore
from hwgen.rtl.access.intake import Intake
from hwgen.rtl.access.loader import Loader
from hwgen.rtl.access.queue import EntryQueue
from hwgen.rtl.access.records import Records
from hwgen.rtl.access.strider import Strider, image_write
from hwgen.rtl.access.translate import Translator
from hwgen.rtl.access.unpacker import Unpacker
from hwgen.rtl.delay import delayed
from hwgen.rtl.interfaces import access_engine, wires
from hwgen.rtl.library import Library
from hwgen.spec.config import MachineConfig


class AccessEngine(wiring.Component):
    """See `hwgen.rtl.interfaces.access_engine` for the ports. Parts of which there are several go to the library."""

    def __init__(self, config: MachineConfig, library: Library) -> None:
        self._config = config
        self._library = library
        super().__init__(access_engine(config))

    def elaborate(self, platform: object) -> Module:
        config = self._config
        m = Module()
        m.submodules.loader = loader = Loader(config)
        m.submodules.store = store = PageStore(config)
        m.submodules.intake = intake = Intake(config)
        m.submodules.unpacker = unpacker = Unpacker(config, self._library)
        connect(m, flipped(self.page), loader.page)
        for name in ("settings", "tuples", "rounds", "fault"):
            connect(m, flipped(getattr(self, name)), getattr(unpacker, name))
        connect(m, flipped(self.image), intake.image)
        connect(m, loader.write, store.write)

        stop, forget = Signal(), Signal()
        m.d.comb += [
            stop.eq(self.stop | unpacker.halt),  # a fault stops all parts in the cycle in which it is reported
            forget.eq(self.start | stop),
            loader.start.eq(self.start),
            loader.stop.eq(stop),
            loader.pages.eq(self.settings.pages),
            loader.release.eq(unpacker.release),
            store.window.eq(unpacker.window),
            unpacker.row.eq(store.row),
            *wires(unpacker, self, "start", "half_release"),
            *wires(self, unpacker, "waiting_for_engine", "waiting_for_pages"),
            unpacker.stop.eq(stop),
            *wires(unpacker, intake, "job", "valid"),
            *wires(intake, unpacker, "ready", "takes"),
            intake.clear.eq(forget),
        ]

        # the host's writes reach the Striders three cycles later: translation takes two, and many may be far away
        m.submodules.translator = translator = Translator(config)
        image = image_write(config).create(path=("image",))
        arriving = image_write(config).create(path=("arriving",))
        m.d.comb += translator.word.eq(arriving.data)
        m.d.sync += [
            arriving.program.eq(self.image.strider),
            *wires(arriving, self.image, "constant", "address", "data"),
            *(
                getattr(image, name).eq(delayed(m, getattr(arriving, name), 1, name=f"translated_{name}"))
                for name in ("program", "constant", "address", "data")
            ),
            image.instruction.eq(translator.instruction),
        ]
        if config.record_depth:
            m.submodules.records = records = Records(config)
            connect(m, unpacker.link, records.link)
            connect(m, flipped(self.records), records.port)
            connect(m, flipped(self.outbox), records.outbox)
            connect(m, flipped(self.image), records.image)
            connect(m, flipped(self.settings), records.settings)
            m.d.comb += [
                records.start.eq(self.start),
                records.stop.eq(stop),
                records.release.eq(self.half_release),
            ]
        skips = Signal(config.striders)
        for s in range(config.striders):
            strider = self._library.place("strider", lambda: Strider(config))
            queue = self._library.place("entry_queue", lambda: EntryQueue(config))
            m.submodules[f"strider_{s}"] = strider
            m.submodules[f"queue_{s}"] = queue
            m.d.comb += [
                *wires(strider.image, image, *image.signature.members),
                strider.write.eq(loader.write.valid & (loader.write.strider == s)),
                *wires(strider, loader.write, "line", "data"),
                strider.loaded.eq(loader.loaded[s]),
                strider.stop.eq(forget),
                strider.room.eq(queue.room),
                queue.clear.eq(forget),
                *wires(queue, strider, "entry", "push"),
                queue.take.eq(intake.take[s]),
                intake.oldest[s].eq(queue.oldest),
                intake.waiting[s].eq(queue.valid),
                skips[s].eq(strider.skip),
            ]

        skipped_now = Signal(range(config.striders + 1))
        m.d.sync += [
            skipped_now.eq(sum(Cat(skips)[s] for s in range(config.striders))),
            self.skipped.eq(self.skipped + skipped_now),
        ]
        with m.If(self.start):
            m.d.sync += [skipped_now.eq(0), self.skipped.eq(0)]
        return m
