"""Drawings of a machine and its use in a run, as SVG text: busy time of each part, roofline, schedule.

In: a `Run`, a `Machine`. Out: SVG elements, for an HTML page or as files. They have no dates and no random ids: the
same run gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.ticker import NullFormatter

from dana.report.colours import EDGE, FAINT, LINE, OTHER
from dana.report.figure import COLOURS, drawn, named
from dana.report.history import Run
from dana.report.machine import Machine
from dana.report.roofline import roofline


def machine_charts(machine: Machine) -> dict[str, str]:
    """All drawings of a machine, by names for files: its use, the roofline, the schedule of each section."""
    drawn = {"use": use_chart(machine), "roofline": roofline_chart(machine)}
    # a section without instructions has no chart
    return drawn | {name: schedule_chart(machine, name) for name, _, bars in machine.sections if bars}


def measured_chart(run: Run) -> str | None:
    """Busy and waiting time of the machine by its counters; None for the interpreter, which has none."""
    if not run.parts:
        return None
    return _shares(f"{named(run)}, measured", run.parts, run.counted["cycles"], "% of {:,.0f} cycles")


def use_chart(machine: Machine) -> str:
    """Share of a page's time that each part of the machine is busy, in the long run."""
    cycles = machine.cycles
    parts = [
        ("units compute", cycles.rows),
        ("engine runs", cycles.engine),
        ("unpacker works", cycles.unpacker),
        ("link brings pages", cycles.link),
    ]
    title = f"{machine.title}, {_units(machine)}: estimate for the long run"
    return _shares(title, parts, cycles.page, "% of the {:,.0f} cycles per page")


def _shares(title: str, parts: Sequence[tuple[str, float]], whole: float, label: str) -> str:
    """A bar for the share of each part in the whole; `label` has a place for the whole."""
    out: list[str] = []
    with drawn(0.7 + 0.3 * len(parts), title, out) as axes:
        names = [name for name, _ in parts]
        shares = [100 * busy / whole for _, busy in parts]
        axes.barh(names, [100] * len(parts), color=FAINT, height=0.6)
        axes.barh(names, shares, color=LINE, height=0.6)
        for row, (share, (_, busy)) in enumerate(zip(shares, parts, strict=True)):
            axes.text(101, row, f"{share:.0f} %, {busy:,.0f} cycles", va="center")
        axes.set_xlim(0, 130)
        axes.set_xticks([0, 25, 50, 75, 100])
        axes.set_xlabel(label.format(whole))
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    return out[0]


def _units(machine: Machine) -> str:
    config = machine.bundle.config
    return f"{config.units} units at {config.clock_hz / 1e6:g} MHz"


def roofline_chart(machine: Machine) -> str:
    """Operations per cycle against operations per byte: the limits of link and units, and the run."""
    config, cycles = machine.bundle.config, machine.cycles
    line = roofline(config, cycles.rows, cycles.page)
    out: list[str] = []
    with drawn(2.9, f"{machine.title}, {_units(machine)}: roofline (estimate for the long run)", out) as axes:
        axes.plot(line.xs, line.limits, color=EDGE)
        axes.plot([line.intensity], [line.reached], marker="o", color=OTHER, markersize=8)
        axes.annotate(
            f"{line.reached:.1f} operations a cycle,\n{line.intensity:.2f} a byte",
            (line.intensity, line.reached),
            xytext=(12, -22),
            textcoords="offset points",
        )
        axes.text(line.xs[-1], config.units * 1.08, f"{config.units} units", ha="right", va="bottom")
        axes.text(
            line.xs[1] / 1.6,
            config.units * 0.85,
            f"link, {config.page_rate:.4g} bytes a cycle",
            ha="right",
            va="bottom",
        )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for axis in (axes.xaxis, axes.yaxis):  # a number: a formula would take longer than the whole drawing
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("operations for each byte of a page")
        axes.set_ylabel("operations a cycle")
        axes.grid(color=FAINT)
    return out[0]


def schedule_chart(machine: Machine, section: str) -> str:
    """A section's instructions over time, one line each."""
    _, length, bars = next(found for found in machine.sections if found[0] == section)
    out: list[str] = []
    with drawn(0.7 + 0.17 * len(bars), f"{machine.title}, {_units(machine)}: section {section}", out) as axes:
        for row, bar in enumerate(bars):
            axes.barh(row, bar.length, left=bar.start, color=COLOURS[bar.kind], height=0.8)
            end = bar.start + bar.length
            right = end < 0.75 * length
            axes.text(
                end + 0.008 * length if right else bar.start - 0.008 * length,
                row,
                bar.text,
                va="center",
                ha="left" if right else "right",
                fontsize=7,
            )
        # the first instruction on top
        axes.set_ylim(len(bars) - 0.3, -0.7)
        axes.set_xlim(0, length)
        axes.set_yticks([])
        axes.set_xlabel(f"cycle of the section, which takes {length:,}")
        axes.spines["left"].set_visible(False)
    return out[0]
