"""The tables and figures of the paper's evaluation, cell by cell.

In: what was computed (`benchmarks.paper.model`), measured (`benchmarks.paper.measured`) and quoted
(`benchmarks.paper.evidence`). Out: `Table`s. Nothing is computed here but ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

from benchmarks.paper.cells import (
    Cell,
    Mark,
    Table,
    by_name,
    computed,
    measured,
    missing,
    mixed,
    quoted,
    words,
    written,
)
from benchmarks.paper.evidence import CHOSEN, DataSet, Evidence, Figure, Statement
from benchmarks.paper.measured import PASSES, Measured
from benchmarks.paper.model import ELEMENTS, LINKS, THREADS, TRIPLES, Machine, Modelled
from benchmarks.peers.cases import SHAPES
from benchmarks.peers.contest import Contest
from benchmarks.peers.participants import DANA as OURS
from benchmarks.peers.participants import EXPORT
from dana.codesign.fitting import RESOURCES
from dana.codesign.search import AS_FAST
from hwgen.devices import Device
from hwgen.spec.config import LANES_PER_CLUSTER, PAGE_SIZES

NOT_HERE = "not measured in this run"
NO_SOURCE = "no source says"
FPGA, FPGA_COLD = "machine, warm", "machine, cold"
HERE, HERE_COLD = "dana_train here, warm", "dana_train here, cold"
MADLIB, DANA = "MADlib", "DAnA, as quoted"
ON_IT, TRAINED = "machine, modelled", "dana_train here"
HEADLINE = "float8"
"""The type of the headline's tables: MADlib computes in it, and each of its linear methods was measured on it."""
STRIDERS, FED, SENT = "with Striders", "fed by the server", "fed by a client"
ALGORITHMS = {"logistic": "logistic regression", "svm": "SVM", "linear": "linear regression", "lrmf_dense": "LRMF"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All there is to print.

    Attributes
    ----------
    measured
        By data set; empty where nothing was measured.
    contests
        Of `dana bench peers`.
    """

    evidence: Evidence
    device: Device
    modelled: Mapping[str, Modelled]
    measured: Mapping[str, Measured]
    contests: Sequence[Contest]

    def best(self, dataset: DataSet) -> Machine | str:
        """The best machine, or why there is none."""
        return self.modelled[dataset.name].best

    def fed(self, dataset: DataSet, machine: Machine | str, *, by: str) -> float | str:
        """Seconds of a pass of a machine without Striders: whichever takes longest of its engine, the link, and what
        feeds it: `copied` or `export`."""
        if isinstance(machine, str):
            return machine
        if dataset.name not in self.measured:
            return "what feeding takes was not measured in this run"
        link = 4 * dataset.rows.value * dataset.columns.value / machine.bandwidth
        feeding: float | str = getattr(self.measured[dataset.name], by)
        return feeding if isinstance(feeding, str) else max(machine.engine, link, feeding)

    def cold(self, dataset: DataSet) -> float | str:
        """Seconds of a pass of the best machine whose pages come from this machine's disk."""
        made, here = self.modelled[dataset.name], self.measured.get(dataset.name)
        if isinstance(made.best, str):
            return made.best
        rates = [one.disk for one in self.measured.values() if not isinstance(one.disk, str)]
        if not rates:
            return "the disk was not measured in this run"
        rate = here.disk if here and not isinstance(here.disk, str) else sorted(rates)[len(rates) // 2]
        return max(made.best.seconds, made.pages * made.page_size / rate)

    def cheapest(self, element: str) -> list[Statement]:
        """MADlib's cheapest method for each data set that it was measured on with arrays of such elements."""
        found: dict[str, Statement] = {}
        for one in self.evidence.madlib:
            if one.type == element:
                found[one.dataset] = min(found.get(one.dataset, one), one, key=lambda each: each.figure.value)
        return list(found.values())

    def as_madlib(self, statement: Statement) -> float | str:
        """Seconds of a pass of the fastest machine for the table that MADlib read."""
        machine = self.modelled[statement.dataset].as_madlib[statement.type]
        return machine if isinstance(machine, str) else machine.seconds

    def trained(self, statement: Statement) -> float | str:
        """Seconds of a pass of dana_train on such a table, measured here."""
        if statement.type == TRIPLES:
            one = next((one for one in self.contests if one.case == statement.dataset), None)
            seconds = None if one is None else one.seconds(OURS)
            # so many ratings were MADlib's
            return NOT_HERE if one is None or seconds is None else seconds * SHAPES[one.case][0] / one.rows
        here = self.measured.get(statement.dataset)
        return NOT_HERE if here is None else here.float8 if statement.type == "float8" else here.warm


def tables(found: Findings) -> list[Table]:
    """All of them."""
    return [
        _claims(found),
        _headline(found),
        _datasets(found),
        _device(found),
        _machines(found),
        _end_to_end(found),
        _striders(found),
        _threads(found),
        _link(found),
        _pages(found),
        _elements(found),
        _tabla(found),
        _libraries(found),
        _madlib(found),
    ]


def _seconds(found: float | str | None) -> Cell:
    return missing() if found is None else computed(found, "s")


def _times(above: float | str | None, below: float | str | None, *, here: bool = False) -> Cell:
    """How many times longer; where one is missing, its own cell says why. `here`: one was measured in this run."""
    if above is None or below is None or isinstance(above, str) or isinstance(below, str):
        return missing()
    return (mixed if here else computed)(above / below, "×")


def _mean(ratios: Sequence[float]) -> float | str:
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else "no data set has both"


def _claims(found: Findings) -> Table:
    return Table(
        name="claims",
        title="What the paper says of itself",
        about="End to end, on the paper's own machines. This project has no figures to compare with these: its "
        "machine is modelled, and MADlib's times are of another processor.",
        first="",
        heads=("the paper, end to end",),
        rows=tuple((one.what, (quoted(one.figure, "×"),)) for one in found.evidence.claims),
    )


def _headline(found: Findings) -> Table:
    rows: list[tuple[str, tuple[Cell, ...]]] = []
    for element in (HEADLINE, "float4", TRIPLES):
        cheapest = found.cheapest(element)
        modelled = _ratios([(one.figure.value, found.as_madlib(one)) for one in cheapest])
        measured_here = _ratios([(one.figure.value, found.trained(one)) for one in cheapest])
        name = f"{element}[]" if element else "ratings as triples"
        rows.append(
            (
                f"{name}: the headline" if element == HEADLINE else name,
                (
                    words(Mark.LABEL, ", ".join(one.dataset for one in cheapest)),
                    computed(_mean(modelled), "×"),
                    computed(max(modelled), "×") if modelled else missing(),
                    mixed(_mean(measured_here), "×") if measured_here else missing(NOT_HERE),
                ),
            )
        )
    return Table(
        name="headline",
        title="MADlib's time of a pass by this project's, both on the same table",
        about="Geometric means over the data sets, of MADlib's cheapest method on tables of each type; a pass, warm, "
        "pages of 8 KB. The headline is float8[]: MADlib computes in it, converts each float4, and has times of all of "
        "its linear methods only there. The machine is modelled; dana_train ran on this machine's processor, and "
        "MADlib on another.",
        first="features in",
        heads=("data sets", f"{MADLIB} ÷ {ON_IT}", "the most", f"{MADLIB} ÷ {TRAINED}"),
        rows=tuple(rows),
    )


def _ratios(pairs: Sequence[tuple[float, float | str]]) -> list[float]:
    return [above / below for above, below in pairs if not isinstance(below, str)]


def _datasets(found: Findings) -> Table:
    rows = {}
    for dataset in found.evidence.datasets:
        made, dense = found.modelled[dataset.name], dataset.rule == "lrmf_dense"
        tuples, width = dataset.rows, dataset.columns
        rows[dataset.name] = [
            words(Mark.QUOTED, ALGORITHMS[dataset.rule] + (", rank 10, dense rows" if dense else ""), width.source),
            quoted(width),
            quoted(tuples),
            words(Mark.COMPUTED, f"{made.density}, of {made.page_size >> 10} KB"),
            computed(made.pages),
            computed(made.pages * made.page_size / 1e6, "MB"),
        ]
    return Table(
        name="datasets",
        title="Data sets",
        about="The paper's 14 workloads: public data, and synthetic ones (S/N, S/E) by their shapes. A table has an "
        "id, a label and an array of floats; of a factorisation, a row's number and the row. Pages are this project's "
        "count, from PostgreSQL's layout; rows that no page of 32 KB holds come in frames.",
        first="data set",
        heads=("algorithm", "columns", "tuples", "on pages", "pages", "size"),
        rows=by_name(rows),
    )


def _device(found: Findings) -> Table:
    device = found.device
    source = "device" if device.name == "xcvu9p" else CHOSEN
    rows = {
        name: [quoted(Figure(value, source)), computed(value * device.usable)]
        for name, value in (
            ("LUTs", device.luts),
            ("flip-flops", device.flipflops),
            ("DSPs", device.dsps),
            ("block RAMs", device.block_rams),
            ("UltraRAMs", device.ultra_rams),
        )
    }
    rows["clock"] = [quoted(Figure(device.clock_hz / 1e6, CHOSEN), "MHz"), missing()]
    rows["pages come at"] = [quoted(Figure(device.page_bandwidth / 1e9, CHOSEN), "GB/s"), missing()]
    link = next((one.best for one in found.modelled.values() if isinstance(one.best, Machine)), None)
    used = missing() if link is None else computed(max(_bandwidths(found)) / 1e9, "GB/s")
    rows["that a link takes"] = [missing(), used]
    return Table(
        name="device",
        title=f"The device: {device.name}, {device.part}",
        about=f"A design takes at most {written(device.usable, '%')} of each resource, so that it can be routed.",
        first="",
        heads=("the device", "for a design"),
        rows=by_name(rows),
    )


def _bandwidths(found: Findings) -> list[float]:
    return [one.best.bandwidth for one in found.modelled.values() if isinstance(one.best, Machine)]


def _machines(found: Findings) -> Table:
    rows = {}
    for dataset in found.evidence.datasets:
        best = found.best(dataset)
        if isinstance(best, str):
            rows[dataset.name] = [missing(best), *[missing()] * 11]
            continue
        units = best.threads * best.clusters * LANES_PER_CLUSTER
        rows[dataset.name] = [
            words(Mark.COMPUTED, f"{best.threads}×{best.clusters}×{LANES_PER_CLUSTER} = {units}"),
            computed(best.striders),
            *(computed(best.uses[name], "%") for name in RESOURCES),
            computed(best.per_tuple),
            words(Mark.COMPUTED, best.waits_for),
            computed(best.link_use, "%"),
            computed(best.unit_use, "%"),
            computed(best.seconds, "s"),
        ]
    return Table(
        name="machines",
        title="The best machine for each data set",
        about="Of those that the search tries, the smallest that fits of all whose time is within "
        f"{written(AS_FAST - 1, '%')} of the fastest's. Units are threads × clusters × 8; LUT to "
        "URAM, of what a design may take, by estimate.",
        first="data set",
        heads=(
            "units",
            "Striders",
            "LUT",
            "FF",
            "DSP",
            "RAM",
            "URAM",
            "cycles of a tuple",
            "waits for",
            "link",
            "busy",
            "a pass",
        ),
        rows=by_name(rows),
    )


def _end_to_end(found: Findings) -> Table:
    evidence = found.evidence
    trainings = {one.dataset: one for one in evidence.trainings}
    rows = {}
    for dataset in evidence.datasets:
        best, here = found.best(dataset), found.measured.get(dataset.name)
        warm = best if isinstance(best, str) else best.seconds
        training = trainings.get(dataset.name)
        rows[dataset.name] = [
            _seconds(warm),
            mixed(found.cold(dataset), "s"),
            measured(here.warm if here else None, "s", here.how if here else ""),
            measured(here.cold if here else None, "s"),
            missing(f"DAnA: {NO_SOURCE}") if training is None else _per_pass(training),
        ]
    return Table(
        name="end to end",
        title="End to end, of a pass, on float4[]: warm and cold",
        about="Machine: the modelled FPGA; cold, its pages come at the rate at which this machine's disk was read, of "
        "all tables' the median where its own could not be. dana_train: this project's SQL function on this machine's "
        f"processor, with a rule that also standardises columns, in trainings of {PASSES} passes. DAnA: seconds of a "
        "training, by its passes, on its own machine. MADlib has tables of its own.",
        first="data set",
        heads=(FPGA, FPGA_COLD, HERE, HERE_COLD, DANA),
        rows=by_name(rows),
    )


def _per_pass(training: Statement) -> Cell:
    each = Figure(training.figure.value / training.passes, training.figure.source)
    passes = f", {training.passes} passes" if training.passes > 1 else ", 1 pass"
    return quoted(each, "s", f"DAnA {training.figure.value:g} s{passes}")


def _striders(found: Findings) -> Table:
    rows = {}
    for dataset in found.evidence.datasets:
        best = found.best(dataset)
        warm = best if isinstance(best, str) else best.seconds
        fed, sent = (found.fed(dataset, best, by=by) for by in ("copied", "export"))
        ratios = (_times(above, warm, here=True) for above in (fed, sent))
        rows[dataset.name] = [_seconds(warm), mixed(fed, "s"), mixed(sent, "s"), *ratios]
    return Table(
        name="striders",
        title="With and without Striders, of a pass",
        about="The same machine without Striders gets tuples instead of pages: whichever takes longest of its engine, "
        "the link for the floats alone, and the feeding, measured here. The server: it finds the arrays in its tuples "
        "and their floats are copied once, the least that it can take. A client: COPY in binary, into arrays. Below 1: "
        "pages hold more than floats, and the link is what both wait for.",
        first="data set",
        heads=(STRIDERS, FED, SENT, "server ÷ Striders", "client ÷ Striders"),
        rows=by_name(rows),
    )


def _threads(found: Findings) -> Table:
    return Table(
        name="threads",
        title="Threads, of a pass",
        about="The fastest machine of so many threads that fits; all give the same model. Where none fits: what the "
        "smallest takes of what a design may. Where rows are trained one after the other, more threads gain nothing.",
        first="data set",
        heads=tuple(map(str, THREADS)),
        rows=by_name(
            {
                name: [_of_threads(made, made.threads[count]) for count in THREADS]
                for name, made in found.modelled.items()
            }
        ),
    )


def _of_threads(made: Modelled, seconds: float | str) -> Cell:
    """What keeps a number of threads from fitting is worth a cell."""
    if isinstance(seconds, str) and isinstance(made.best, Machine):
        return words(Mark.COMPUTED, seconds)
    return _seconds(seconds)


def _link(found: Findings) -> Table:
    return Table(
        name="link",
        title="Bandwidth of the page link, of a pass",
        about="The best machine with 64 Striders, behind a memory of a quarter to four times the device's rate.",
        first="data set",
        heads=tuple(f"{times:g} ×" for times in LINKS),
        rows=by_name({name: [_seconds(made.links[times]) for times in LINKS] for name, made in found.modelled.items()}),
    )


def _pages(found: Findings) -> Table:
    return Table(
        name="pages",
        title="Page sizes, of a pass",
        about="The best machine's threads, clusters and link with 64 Striders, for tables on pages of other sizes. "
        "Rows that such a page does not hold come in frames, whose size does not follow the table's.",
        first="data set",
        heads=tuple(f"{size >> 10} KB" for size in PAGE_SIZES),
        rows=by_name(
            {name: [_seconds(made.page_sizes[size]) for size in PAGE_SIZES] for name, made in found.modelled.items()}
        ),
    )


def _elements(found: Findings) -> Table:
    rows = {}
    for name, made in found.modelled.items():
        narrow, wide = (made.elements[element] for element in ELEMENTS)
        if isinstance(narrow, str) or isinstance(wide, str):
            rows[name] = [missing(narrow if isinstance(narrow, str) else str(wide)), *[missing()] * 3]
            continue
        ratio = wide[0] / narrow[0]
        rows[name] = [computed(narrow[0]), computed(wide[0]), computed(ratio, "×"), computed(wide[1])]
    return Table(
        name="elements",
        title="Types of elements, cycles of a row",
        about="The best machine's threads, clusters and link with 64 Striders, for arrays of both types. No machine "
        "takes a row in fewer cycles than its link brings it in.",
        first="data set",
        heads=("float4[]", "float8[]", "float8[] ÷ float4[]", "the link, float8[]"),
        rows=by_name(rows),
    )


def _tabla(found: Findings) -> Table:
    rows = {}
    for dataset in found.evidence.datasets:
        best, single = found.best(dataset), found.modelled[dataset.name].single
        warm = best if isinstance(best, str) else best.seconds
        alone = single if isinstance(single, str) else single.seconds
        fed = found.fed(dataset, single, by="copied")
        shape = missing(single) if isinstance(single, str) else words(Mark.COMPUTED, f"1×{single.clusters}×8")
        rows[dataset.name] = [_seconds(warm), shape, _seconds(alone), mixed(fed, "s"), _times(fed, warm, here=True)]
    return Table(
        name="tabla",
        title="Compared with a machine like TABLA, one pass",
        about="One thread, the fastest that fits, fed by the server as without Striders: a machine of this project, "
        "programmed and scheduled as its others, and no measurement of TABLA.",
        first="data set",
        heads=("best machine", "one thread", "with Striders", FED, "fed ÷ best"),
        rows=by_name(rows),
    )


def _libraries(found: Findings) -> Table:
    """Peers of public data, measured, then what was logged; a row for each."""
    rows: list[tuple[str, tuple[Cell, ...]]] = []

    def row(dataset: DataSet, who: str, cell: Cell, how: str, *, passes: float) -> None:
        best = found.best(dataset)
        above = cell.value / passes if cell.value and passes else None
        here = cell.mark is Mark.MEASURED
        ratio = _times(above, best if isinstance(best, str) else best.seconds, here=here)
        rows.append((dataset.name, (words(Mark.LABEL, who), cell, words(Mark.LABEL, how), ratio)))

    for dataset in found.evidence.datasets:
        for contest in found.contests:
            # ratings as triples are as many as they are
            triples = contest.rule == "lrmf"
            part = 1.0 if triples else contest.rows / dataset.rows.value
            for line in contest.lines if contest.case == dataset.name else ():
                if line.trains or line.peer == EXPORT:
                    note = (
                        f"on {contest.rows:,} {'ratings, triples' if triples else 'rows'}"
                        if triples or part < 1
                        else ""
                    )
                    who = f"dana_train, rule {contest.rule}" if line.peer == OURS else line.peer
                    seconds = f"{line.peer}: {line.how}" if line.seconds is None else line.seconds
                    row(dataset, who, measured(seconds, "s", note), line.how, passes=part)
        for one in found.evidence.libraries:
            if one.dataset == dataset.name:
                how = (
                    "a training of one pass"
                    if one.passes
                    else "before a training"
                    if "CSV" in one.what
                    else "a training"
                )
                row(dataset, one.what, quoted(one.figure, "s"), how, passes=one.passes)
    return Table(
        name="libraries",
        title="External libraries",
        about="Measured here: a pass on arrays that are in memory already, with one thread; the export that comes "
        "before it is a line of its own. dana_train is measured again, in turn with the others, and at another moment "
        "than end to end. The last column's machine is modelled, and reads a table of float4[], as dana_train does, "
        "not arrays in memory. Quoted: what the paper's authors logged; of how many passes a training was, "
        "it does not say.",
        first="data set",
        heads=("who", "a pass, or as said", "how", "÷ best machine, modelled, on float4[]"),
        rows=tuple(rows),
    )


def _madlib(found: Findings) -> Table:
    rows = []
    for one in found.evidence.madlib:
        modelled, here = found.as_madlib(one), found.trained(one)
        table = f"{one.type}[]{f' {one.storage}' if one.storage else ''}" if one.type else "triples"
        rows.append(
            (
                f"{one.dataset}, {table}",
                (
                    words(Mark.LABEL, one.what),
                    quoted(one.figure, "s"),
                    _seconds(modelled),
                    _times(one.figure.value, modelled),
                    measured(here, "s"),
                    _times(one.figure.value, here, here=True),
                ),
            )
        )
    return Table(
        name="madlib",
        title="MADlib, of a pass, method by method, and this project on the same table",
        about="The machine is the fastest for a table of that type, on pages of 8 KB as MADlib's were; dana_train "
        "standardises columns, too. MADlib is not on the embedded server: its times are this project's, of another "
        "machine and day. Its own default flags (-O2 -mno-sse2) are 1.1 to 4.3 times slower. Arrays are in their rows; "
        "but MADlib's of WLAN were stored out of line, as PostgreSQL does with float8[] of 520 without STORAGE PLAIN.",
        first="data set and table",
        heads=("method", MADLIB, ON_IT, f"{MADLIB} ÷ {ON_IT}", TRAINED, f"{MADLIB} ÷ {TRAINED}"),
        rows=tuple(rows),
    )
