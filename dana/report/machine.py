"""The machine of a run: its design, compiled again from the rule and the recorded description of the table.

In: a `Run`. Out: a `Machine` with bounds and use of an epoch and the schedule of its sections, or the reason for none.
Nothing is trained. Only the very machine of the run is shown: its digest must match.
"""

from __future__ import annotations

from dataclasses import dataclass

from dana.codesign.cycles import Cycles, measure_cycles
from dana.codesign.sample import sample_pages
from dana.errors import UsageError
from dana.report.history import Run
from dana.trainer.designs import DesignStore
from dana.trainer.provenance import recorded_request
from dsl import RuleError
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import ConfigError
from hwgen.spec.engine import Instruction, Opcode, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """An instruction in time.

    Attributes
    ----------
    start, length
        Cycles from the start of its section; of its rows.
    kind
        `arithmetic`, `exchange` (operands from other lanes or threads), `function`, `move`.
    text
        Operation and loops.
    """

    start: int
    length: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A run's machine.

    Attributes
    ----------
    title
        Rule and device, or rule, table and run.
    cycles
        Of a page in the long run: an estimate.
    sections
        Name, cycles and instructions of each section of the program.
    """

    title: str
    bundle: Bundle
    cycles: Cycles
    sections: tuple[tuple[str, int, tuple[Bar, ...]], ...]

    @classmethod
    def of(cls, title: str, bundle: Bundle, cycles: Cycles) -> Machine:
        """The machine of a Bundle with its estimated cycles."""
        return cls(
            title=title,
            bundle=bundle,
            cycles=cycles,
            sections=tuple(_section(bundle, name) for name in bundle.sections),
        )


def machine_of(run: Run) -> Machine | str:
    """Make the design of a run again.

    Returns
    -------
    Machine or str
        If it cannot be compiled again, the reason in sentences; empty if the run had no machine.
    """
    if "bundle" not in run.design:
        return ""
    if run.text is None:
        return run.missing
    request = recorded_request(rule=run.rule, text=run.text, relation=run.source, design=run.design)
    try:
        # without a folder: a report must not write to the cache
        bundle = DesignStore().get(request).bundle
    except (UsageError, RuleError, ConfigError):
        bundle = None
    if bundle is None or bundle.digest != run.design["bundle"]:
        return "The run used another version of DAnA; this version compiles the rule to another machine."
    # with the skipped ones: they take the Strider's time as well
    tuples = max(1, round((run.tuples + run.skipped) / max(1, run.pages_of_epoch)))
    sample = sample_pages(request.relation.schema, page_size=bundle.config.page_size, tuples=tuples)
    return Machine.of(f"rule {run.rule} on {run.source}, run {run.id}", bundle, measure_cycles(bundle, sample))


def _section(bundle: Bundle, name: str) -> tuple[str, int, tuple[Bar, ...]]:
    instructions = bundle.section(name)  # type: ignore[arg-type]
    bars = []
    now = 0
    for instruction in instructions:
        # END issues no row; `section_length` counts its cycle
        if instruction.op is Opcode.END:
            break
        now += instruction.wait
        length = instruction.rows * bundle.config.row_interval(instruction)
        bars.append(Bar(start=now, length=length, kind=_kind(instruction), text=_text(instruction)))
        now += length
    return str(name), bundle.config.section_length(instructions), tuple(bars)


def _kind(instruction: Instruction) -> str:
    if instruction.op.special:
        return "function"
    if instruction.source is not Source.MEMORY:
        return "exchange"
    return "move" if instruction.op in (Opcode.MOV, Opcode.MOVC) else "arithmetic"


def _text(instruction: Instruction) -> str:
    exchange = {Source.LANE_XOR: " lanes", Source.THREAD_XOR: " threads"}.get(instruction.source, "")
    exchange = f" across{exchange}" if exchange and instruction.crossed else exchange
    loops = f"{instruction.outer}×{instruction.inner}" if instruction.outer > 1 else str(instruction.inner)
    return f"{instruction.op.name.lower()}{exchange} {loops}"
