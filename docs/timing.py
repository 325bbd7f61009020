"""Draws timing diagrams from the waveforms of a training: ``python docs/timing.py t.vcd -o FOLDER``.

In: what ``dana board PACKAGE --trace t.vcd`` records. Out: for each of `DIAGRAMS` WaveJSON, which WaveDrom's editor
opens, and the same as SVG. A column is a clock cycle, with the values that the rising edge at its end takes; where
nothing shown changes, cycles are left out, and their number stands in the gap.
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

CLOCK, TRAIN = "clk", "loop.train"
"""The board's clock; a signal that only a board has, which says where it is in the waveforms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """What to draw, and when: from the first cycle in which `begin` is 1 to the first in which `end` is."""

    title: str
    begin: str
    end: str
    signals: str
    """Names below the board, as the waveforms have them, without their widths, between blanks."""
    before: int = 1
    """Cycles that are shown before the begin."""

    @property
    def names(self) -> list[str]:
        """The signals, from the top."""
        return self.signals.split()


DIAGRAMS = {
    "write": Diagram(
        title="A write of a register",
        begin="s_axil_awvalid",
        end="s_axil_bvalid",
        signals=(
            "s_axil_awvalid s_axil_awready s_axil_awaddr s_axil_wvalid s_axil_wready s_axil_wdata "
            "s_axil_bvalid s_axil_bready s_axil_bresp"
        ),
    ),
    "read": Diagram(
        title="A read of a register",
        begin="s_axil_arvalid",
        end="s_axil_rvalid",
        signals=("s_axil_arvalid s_axil_arready s_axil_araddr s_axil_rvalid s_axil_rready s_axil_rdata s_axil_rresp"),
    ),
    "page": Diagram(
        title="Requests of pages, and the first burst",
        begin="machine.page_req_valid",
        end="m_axi_rlast",
        signals=(
            "machine.page_req_valid machine.page_req_page m_axi_arvalid m_axi_arready m_axi_araddr m_axi_arlen "
            "m_axi_rvalid m_axi_rready m_axi_rlast machine.page_valid"
        ),
    ),
    "round": Diagram(
        title="The last round of an epoch, from its hand-over",
        begin="machine.access.rounds_epoch_last",
        end="machine.engine.finished",
        signals=(
            "machine.access.rounds_round_valid machine.access.rounds_count machine.access.rounds_batch_last "
            "machine.access.rounds_epoch_last machine.engine.sequencer.section_end machine.access.half_release "
            "machine.engine.finished"
        ),
    ),
    "start": Diagram(
        title="The start of a training, and its first epoch",
        begin=TRAIN,
        end="loop.loss_valid",
        signals=(
            "loop.train loop.busy machine.engine.start machine.page_req_valid machine.page_req_page "
            "machine.access.rounds_round_valid machine.engine.finished loop.loss_valid"
        ),
    ),
    "end": Diagram(
        title="The end of a training",
        begin="irq",
        end="irq",
        before=36,
        signals="machine.engine.finished loop.loss_valid loop.epochs_run loop.busy irq",
    ),
}
"""Name of the files, and what they show; docs/hardware.md explains the signals."""

MIN_GAP = 6
"""Cycles that are left out at least."""


class TimingError(ValueError):
    """The waveforms are not those of a board's training; says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """A column of a diagram: values in the order of its signals; or none, and how many cycles are left out."""

    values: tuple[str, ...] = ()
    left_out: int = 0


def diagrams(waveforms: str) -> dict[str, tuple[str, str]]:
    """WaveJSON and SVG of each of `DIAGRAMS`, from the text of a VCD file.

    Raises
    ------
    TimingError
        A signal is not there, or a diagram's begin or end does not occur.
    """
    header, _, body = waveforms.partition("$enddefinitions $end")
    declared = dict(_declared(header))
    board = next((name.removesuffix(TRAIN) for name in declared if name.endswith(f".{TRAIN}")), "")
    codes = {name.removeprefix(board): code for name, code in declared.items()}
    wanted = sorted({CLOCK, *(name for one in DIAGRAMS.values() for name in (*one.names, one.begin, one.end))})
    if missing := [name for name in wanted if name not in codes]:
        raise TimingError(f"the waveforms must have a board's {', '.join(missing)}, as dana board --trace records them")
    cycles = list(_cycles(body, {name: codes[name] for name in wanted}))
    found = {}
    for name, diagram in DIAGRAMS.items():
        columns = _columns(diagram, cycles)
        gaps = ", ".join(str(one.left_out) for one in columns if one.left_out)
        texts = {"head": {"text": diagram.title}, "foot": {"text": f"cycles left out: {gaps or 'none'}"}}
        drawn = {"signal": list(_rows(diagram, columns)), **texts}
        found[name] = (json.dumps(drawn, indent=1) + "\n", _svg(diagram, columns))
    return found


def _declared(header: str) -> Iterator[tuple[str, str]]:
    """Full names, and the codes that stand for them."""
    scopes: list[str] = []
    for line in header.split("\n"):
        word, *rest = line.split() or [""]
        if word == "$scope":
            scopes.append(rest[1])
        elif word == "$upscope":
            scopes.pop()
        elif word == "$var":
            yield ".".join([*scopes, rest[3]]), rest[2]


def _cycles(body: str, codes: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Binary digits of each signal before each rising edge of the clock."""
    now = dict.fromkeys(codes.values(), "0")
    for step in re.split(r"^#\d+\n", body, flags=re.MULTILINE):
        changes = [line[1:].split() if line[0] == "b" else (line[0], line[1:]) for line in step.split("\n") if line]
        changed = {code: value for value, code in changes if code in now}
        if changed.get(codes[CLOCK]) == "1":
            yield {name: now[code] for name, code in codes.items()}
        now.update(changed)


def _columns(diagram: Diagram, cycles: Sequence[Mapping[str, str]]) -> list[Cycle]:
    """The diagram's cycles, without those in which nothing changes."""
    at = 0
    ends = []
    for signal in (diagram.begin, diagram.end):
        at = next((cycle for cycle in range(at, len(cycles)) if cycles[cycle][signal] == "1"), -1)
        if at < 0:
            raise TimingError(f"{signal} must be 1 in some cycle of the waveforms: {diagram.title.lower()}")
        ends.append(at)
    shown = cycles[max(0, ends[0] - diagram.before) : ends[1] + 2]
    values = [tuple(cycle[signal] for signal in diagram.names) for cycle in shown]
    columns: list[Cycle] = []
    start = 0
    for end in range(1, len(values) + 1):
        if end < len(values) and values[end] == values[start]:
            continue
        length = end - start
        # one cycle of a long time stands before the gap, one after it
        gap = length - 2 if length - 2 >= MIN_GAP else 0
        columns += [Cycle(values=values[start])] * (1 if gap else length)
        columns += [Cycle(left_out=gap), Cycle(values=values[start])] if gap else []
        start = end
    return columns


def _rows(diagram: Diagram, columns: Sequence[Cycle]) -> Iterator[dict[str, object]]:
    """A diagram's signals in WaveJSON."""
    yield {"name": CLOCK, "wave": "p" + "".join("|" if one.left_out else "." for one in columns[1:])}
    for row, name in enumerate(diagram.names):
        wave, labels, last = "", [], None
        for one in columns:
            if one.left_out:
                wave += "|"
                continue
            value = one.values[row]
            wide = _wide(columns, row)
            wave += "." if value == last else "=" if wide else value
            if value != last and wide:
                labels.append(_hexadecimal(value))
            last = value
        yield {"name": name, "wave": wave, **({"data": labels} if labels else {})}


def _wide(columns: Sequence[Cycle], row: int) -> bool:
    """Whether the signal has several bits: a bus without leading zeros may have one digit in some cycles."""
    return any(len(one.values[row]) > 1 for one in columns if one.values)


def _hexadecimal(value: str) -> str:
    return f"{int(value, 2):x}" if set(value) <= {"0", "1"} else "x"


WIDTH, HEIGHT, MARGIN, SLOPE = 40, 26, 12, 3
"""Of a cycle; of a signal's row; around all; of a change, in pixels."""

STYLE = (
    "text{font:12px sans-serif}.v{font-size:10px}.g{font-size:10px;text-anchor:middle}path{fill:none;stroke:black}"
    ".e{stroke:#ddd}.o{stroke-dasharray:2,4}.t{font-weight:bold}"
)


def _svg(diagram: Diagram, columns: Sequence[Cycle]) -> str:
    names = [CLOCK, *diagram.names]
    left = MARGIN + 7 * max(len(name) for name in names)
    right, bottom = left + WIDTH * len(columns), 2 * HEIGHT + HEIGHT * len(names)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + MARGIN} {bottom + MARGIN}" '
        f'width="{right + MARGIN}" height="{bottom + MARGIN}"><title>{escape(diagram.title)}</title>',
        f"<style>{STYLE}</style>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text class="t" x="{MARGIN}" y="{HEIGHT - 8}">{escape(diagram.title)}</text>',
    ]
    edges = "".join(f"M{left + WIDTH * column},{2 * HEIGHT}V{bottom}" for column in range(len(columns)))
    drawn.append(f'<path class="e" d="{edges}"/>')
    for column, one in enumerate(columns):
        x = left + WIDTH * column
        if one.left_out:
            drawn.append(f'<text class="g" x="{x + WIDTH // 2}" y="{2 * HEIGHT - 10}">… {one.left_out} …</text>')
    for row, name in enumerate(names):
        y = 2 * HEIGHT + HEIGHT * row
        drawn.append(f'<text x="{MARGIN}" y="{y + HEIGHT - 9}">{escape(name)}</text>')
        drawn += _clock(columns, left, y) if row == 0 else _signal(columns, row - 1, left, y)
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _clock(columns: Sequence[Cycle], left: int, y: int) -> Iterator[str]:
    high, low = y + 4, y + HEIGHT - 4
    edges = [left + WIDTH * column for column, one in enumerate(columns) if not one.left_out]
    line = "".join(f"M{x},{low}V{high}H{x + WIDTH // 2}V{low}H{x + WIDTH}" for x in edges)
    yield f'<path d="{line}"/>'


def _signal(columns: Sequence[Cycle], row: int, left: int, y: int) -> Iterator[str]:
    """A bit as a line, several as a band with the value in its first cycle."""
    high, low = y + 4, y + HEIGHT - 4
    last = columns[0].values[row]
    solid = dashed = ""
    for column, one in enumerate(columns):
        x = left + WIDTH * column
        value = last if one.left_out else one.values[row]
        start, end = x + (SLOPE if value != last else 0), x + WIDTH
        if _wide(columns, row):
            line = f"M{start},{high}H{end}M{start},{low}H{end}"
            if value != last:
                line += f"M{x},{high}L{start},{low}M{x},{low}L{start},{high}"
            if value != last or column == 0:
                yield f'<text class="v" x="{x + SLOPE + 2}" y="{low - 4}">{_hexadecimal(value)}</text>'
        else:
            before, level = (high if digit == "1" else low for digit in (last, value))
            line = f"M{x},{before}L{start},{level}H{end}"
        if one.left_out:
            dashed += line
        else:
            solid += line
        last = value
    yield f'<path d="{solid}"/>'
    if dashed:
        yield f'<path class="o" d="{dashed}"/>'


def main() -> None:
    """Write the diagrams of a waveform."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    options.add_argument("waveforms", type=Path, help="what dana board PACKAGE --trace FILE.vcd wrote")
    options.add_argument("-o", "--output", type=Path, required=True, help="folder for NAME.json and NAME.svg")
    given = options.parse_args()
    try:
        found = diagrams(given.waveforms.read_text(encoding="utf-8"))
        given.output.mkdir(parents=True, exist_ok=True)
        for name, (description, drawing) in found.items():
            (given.output / f"{name}.json").write_text(description, encoding="utf-8")
            (given.output / f"{name}.svg").write_text(drawing, encoding="utf-8")
    except (OSError, UnicodeDecodeError, TimingError) as error:
        raise SystemExit(f"{given.waveforms}: {error}") from None


if __name__ == "__main__":
    main()
