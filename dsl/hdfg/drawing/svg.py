"""A picture of a graph as SVG, for notebooks and `dana compile --emit svg`.

In: a `Graph`. Out: one `<svg>` element that needs nothing else: no script, font or style sheet.
Must not: decide what is drawn (`picture`) or where a box is placed (`layout`).
"""

from __future__ import annotations

import itertools
import unicodedata
from xml.sax.saxutils import escape, quoteattr

from dsl.hdfg.drawing.layout import Link, Thing, order, place
from dsl.hdfg.drawing.picture import Arrow, Box, Kind, Part, Picture, picture
from dsl.hdfg.drawing.words import batch_text
from dsl.hdfg.graph import Graph

MAX_BOXES = 400
"""Largest number of boxes in a readable picture; a larger graph is replaced by a sentence."""
MAX_ROWS_PASSED = 10000
"""Largest number of rows that all arrows together may cross; more takes seconds to lay out."""

CHARACTER = 7.3  # width of a character of the font below
FONT = 'font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" font-size="12"'
MARGIN = 14.0
GAP = 26.0
ROW_GAP = 38.0
PART_GAP = 62.0
HEADING = 22.0
ARROW = 6.0
CLEAR = 5.0  # of a long arrow to the boxes that it passes

TITLES = {Part.TUPLE: "for each tuple", Part.MERGE: "joined over the batch", Part.BATCH: "for each batch"}
GROUNDS = {Part.TUPLE: "#eef4fb", Part.MERGE: "#fdf2df", Part.BATCH: "#edf6ec"}
EDGES = {Part.TUPLE: "#5b87b8", Part.MERGE: "#c98a1b", Part.BATCH: "#5d9a58"}
FILLS = {
    Kind.DATA: ("#ffffff", "#3568a0"),
    Kind.MODEL: ("#efe6f8", "#7a4fa3"),
    Kind.NUMBER: ("#f3f3f3", "#8a8a8a"),
    Kind.MERGE: ("#ffdf9e", "#c98a1b"),
    Kind.RESULT: ("#39424e", "#39424e"),
}
LEGEND = ((Kind.DATA, "input, output"), (Kind.MODEL, "model"), (Kind.OPERATION, "operation"), (Kind.RESULT, "result"))


def svg(graph: Graph) -> str:
    """Return the graph as a picture; one sentence in place of it if it is too large to be legible."""
    drawn = picture(graph)
    epochs = "1 epoch" if graph.epochs == 1 else f"at most {graph.epochs} epochs"
    title = f"{graph.name}: batches of {batch_text(graph)}, {epochs}"
    passed = sum(drawn.boxes[a.target].row - drawn.boxes[a.source].row for a in drawn.arrows)
    if len(drawn.boxes) > MAX_BOXES or passed > MAX_ROWS_PASSED:
        text = f"{title}; too large to draw, with {len(drawn.boxes):,} boxes: print the graph to list it"
        return _document(_width(text) + 2 * MARGIN, 3 * MARGIN, [_text(MARGIN, 2 * MARGIN, text)], title)
    return _Drawing(drawn, title).document()


class _Drawing:
    """One picture with coordinates."""

    def __init__(self, drawn: Picture, title: str) -> None:
        self._boxes = drawn.boxes
        self._title = title
        self._things = [Thing(row=box.row, width=_box_width(box)) for box in drawn.boxes]
        self._paths: list[tuple[Arrow, list[int]]] = []
        links: list[Link] = []
        self._last: list[Link] = []  # of each arrow, the link that enters its target
        for arrow in drawn.arrows:
            path = self._path(arrow)
            self._paths.append((arrow, path))
            links += [Link(upper=a, lower=b) for a, b in itertools.pairwise(path)]
            links[-1].at_lower = (
                0.0 if self._boxes[arrow.target].symmetric else self._port(arrow.target, arrow.port, arrow.ports)
            )
            self._last.append(links[-1])
        # in this order: ports of symmetric operations follow the rows' order, and things are pulled towards ports
        rows = order(self._things, links)
        self._assign_ports(rows)
        place(self._things, rows, GAP)
        self._place_rows()

    def _assign_ports(self, rows: list[list[int]]) -> None:
        """Let arrows enter a symmetric operation in the order in which they arrive."""
        position = {i: number for row in rows for number, i in enumerate(row)}
        entering: dict[int, list[Link]] = {}
        for link in self._last:
            if self._boxes[link.lower].symmetric:
                entering.setdefault(link.lower, []).append(link)
        for target, links in entering.items():
            for port, link in enumerate(sorted(links, key=lambda link: position[link.upper])):
                link.at_lower = self._port(target, port, len(links))

    def _path(self, arrow: Arrow) -> list[int]:
        """The things that an arrow visits: its two boxes, and a new one in every row between them."""
        path = [arrow.source]
        for row in range(self._boxes[arrow.source].row + 1, self._boxes[arrow.target].row):
            path.append(len(self._things))
            # heavier than a box: a bend in a long arrow is worse than a box off its place
            self._things.append(Thing(row=row, width=2 * CLEAR, weight=4.0))
        return [*path, arrow.target]

    def _port(self, target: int, port: int, ports: int) -> float:
        return self._things[target].width * ((port + 1) / (ports + 1) - 0.5)

    def _place_rows(self) -> None:
        self._tops: list[float] = []
        self._heights: list[float] = []
        self._parts: dict[Part, tuple[float, float]] = {}
        # a row has boxes of one part only (`picture`)
        part = {box.row: box.part for box in self._boxes}
        y = MARGIN + HEADING + (HEADING if part else 0.0)
        for row in range(1 + max(part, default=-1)):
            if row:
                y += ROW_GAP if part[row] is part[row - 1] else PART_GAP
            height = max(_box_height(box) for box in self._boxes if box.row == row)
            self._tops.append(y)
            self._heights.append(height)
            top = self._parts.get(part[row], (y, y))[0]
            y += height
            self._parts[part[row]] = (top, y)
        self._bottom = y

    def document(self) -> str:
        """The whole element."""
        left = 2 * MARGIN
        inner = max((thing.x + thing.width / 2 for thing in self._things), default=0.0)
        legend = sum(_width(text) + 46 for _, text in LEGEND)
        width = max(inner + 2 * left, _width(self._title) + 2 * MARGIN, legend + 2 * MARGIN)
        shift = (width - inner) / 2
        # SVG paints in the order of the document: grounds, arrows over them, then boxes and texts over arrows
        out = [_text(MARGIN, MARGIN + 12, self._title, weight="bold")]
        for part, (top, bottom) in self._parts.items():
            out.append(
                f'<rect x="{MARGIN:g}" y="{top - HEADING:.1f}" width="{width - 2 * MARGIN:.1f}" '
                f'height="{bottom - top + HEADING + 10:.1f}" rx="8" fill="{GROUNDS[part]}"/>'
            )
        # moves the things themselves, so that a second call would move them again
        for thing in self._things:
            thing.x += shift
        for (arrow, path), link in zip(self._paths, self._last, strict=True):
            out.append(self._arrow(arrow, path, link.at_lower))
        for part, (top, _) in self._parts.items():
            out.append(
                _text(MARGIN + 8, top - HEADING + 15, TITLES[part], colour=EDGES[part], size=11, halo=GROUNDS[part])
            )
        for index in range(len(self._boxes)):
            out += self._box(index)
        out += [self._shape(index) for index in sorted({arrow.source for arrow, _ in self._paths})]
        out += _legend(self._bottom + 30)
        return _document(width, self._bottom + 30 + 2 * MARGIN, [line for line in out if line], self._title)

    def _middle(self, row: int) -> float:
        return self._tops[row] + self._heights[row] / 2

    def _ends(self, index: int) -> tuple[float, float]:
        """Upper and lower side of a box; a long arrow passes a row from its top to its bottom."""
        thing = self._things[index]
        if index >= len(self._boxes):
            return self._tops[thing.row], self._tops[thing.row] + self._heights[thing.row]
        half = _box_height(self._boxes[index]) / 2
        return self._middle(thing.row) - half, self._middle(thing.row) + half

    def _arrow(self, arrow: Arrow, path: list[int], entry: float) -> str:
        x, y = self._things[path[0]].x, self._ends(path[0])[1]
        line = f"M{x:.1f} {y:.1f}"
        for i in path[1:]:
            to_x, to_y = self._things[i].x, self._ends(i)[0]
            if i == path[-1]:
                to_x, to_y = to_x + entry, to_y - ARROW
            bend = (y + to_y) / 2
            line += f"C{x:.1f} {bend:.1f} {to_x:.1f} {bend:.1f} {to_x:.1f} {to_y:.1f}"
            x, y = to_x, to_y
            if i != path[-1]:
                y = self._ends(i)[1]
                line += f"V{y:.1f}"
        source = self._boxes[arrow.source]
        colour = EDGES[self._boxes[arrow.target].part]
        head = f"M{x - 3.5:.1f} {y:.1f}h7l-3.5 {ARROW:g}z"
        thickness = 1.1 + 0.7 * source.axes
        return f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="{thickness:.1f}"/>' + (
            f'<path d="{head}" fill="{colour}"/>'
        )

    def _shape(self, index: int) -> str:
        box, thing = self._boxes[index], self._things[index]
        if not box.shape:
            return ""
        return _text(
            thing.x + 5, self._ends(index)[1] + 12, box.shape, colour="#55606e", size=10, halo=GROUNDS[box.part]
        )

    def _box(self, index: int) -> list[str]:
        box, thing = self._boxes[index], self._things[index]
        top, bottom = self._ends(index)
        fill, edge = FILLS.get(box.kind, ("#ffffff", EDGES[box.part]))
        round_ = (bottom - top) / 2 if box.kind in (Kind.DATA, Kind.MODEL, Kind.NUMBER) else 4
        colour = "#ffffff" if box.kind is Kind.RESULT else "#1d232b"
        left = thing.x - thing.width / 2
        out = ["<g>" if box.line is None else f"<g><title>line {box.line}</title>"]
        out.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{thing.width:.1f}" height="{bottom - top:.1f}" '
            f'rx="{round_:g}" fill="{fill}" stroke="{edge}" stroke-width="1.3"/>'
        )
        lines = [text for text in (box.name, box.text) if text]
        for number, text in enumerate(lines):
            y = (top + bottom) / 2 + 4 + (number - (len(lines) - 1) / 2) * 15
            bold = "bold" if box.name and number == 0 else ""
            out.append(_text(thing.x, y, text, colour=colour, weight=bold, anchor="middle"))
        out.append("</g>")
        return out


def _box_width(box: Box) -> float:
    return max(_width(box.name), _width(box.text), 12.0) + 22.0


def _box_height(box: Box) -> float:
    return 42.0 if box.name else 27.0


def _width(text: str) -> float:
    # East Asian wide characters take two cells of a monospaced font
    return CHARACTER * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    colour: str = "#1d232b",
    weight: str = "",
    anchor: str = "",
    size: int = 0,
    halo: str = "",
) -> str:
    more = f' font-weight="{weight}"' if weight else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    more += f' font-size="{size}"' if size else ""
    behind = f' stroke="{halo}" stroke-width="3" stroke-linejoin="round"'
    drawn = f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{more}>{escape(text)}</text>'
    # the first ">" ends the opening tag: those of the text are escaped
    return drawn.replace(">", behind + ">", 1) + drawn if halo else drawn


def _legend(y: float) -> list[str]:
    out = []
    x = MARGIN
    for kind, text in LEGEND:
        fill, edge = FILLS.get(kind, ("#ffffff", EDGES[Part.TUPLE]))
        corner = 4 if kind in (Kind.OPERATION, Kind.RESULT) else 6
        out.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="22" height="12" rx="{corner}" fill="{fill}" stroke="{edge}"/>'
        )
        out.append(_text(x + 28, y + 10, text, colour="#55606e", size=11))
        x += _width(text) + 46
    return out


def _document(width: float, height: float, lines: list[str], title: str) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT} role="img" aria-label={quoteattr(title)}>'
    return (
        "\n".join([head, f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>', *lines, "</svg>"]) + "\n"
    )
