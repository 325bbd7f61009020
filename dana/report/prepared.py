"""The preparation of the data for a training, in words.

In: a `Run`, its `StoredModel` if that still exists. Out: headings and texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dana.records import Metadata, Preprocessed
from dana.report.history import Run
from dana.report.stored import StoredModel

MAX_NAMES = 60
MAX_CATEGORIES = 12


def prepared(run: Run, model: StoredModel | None) -> list[tuple[str, str]]:
    """A heading and a text for each step."""
    kept: Metadata = {} if model is None else model.metadata
    lines = [("rows", f"{run.tuples:,} trained on")]
    if run.skipped:
        lines[0] = ("rows", f"{lines[0][1]}, {run.skipped:,} left out: a column in use is NULL, NaN or infinite")
    if size := kept.get("test_size"):
        lines.append(("for tests", f"{100 * size:g} % of the rows were left out (seed {kept['seed']})"))
    if after := kept.get("test_after"):
        lines.append(("for tests", f"rows with {after['column']} later than {after['value']} were left out"))
    if condition := kept.get("filter"):
        lines.append(("filter", condition))
    if group := kept.get("group"):
        lines.append(("group", _pairs(group["key"])))
    features = kept.get("features") or run.features
    lines.append(("features", f"{len(features):,}: {_some(features)}"))
    lines.append(("label", ", ".join(run.labels) or "none"))
    if classes := kept.get("classes"):
        lines.append(("classes", ", ".join(f"{name} = {k}" for k, name in enumerate(classes))))
    for one in kept.get("preprocess") or ():
        said = _encoded(one)
        if said:
            lines.append((str(one.get("column")), said))
    if model is not None:
        count = len(model.standardised)
        said = f"{count:,} column{'s' if count > 1 else ''}: (value − mean) / divisor"
        lines.append(("standardised", said if count else "no column"))
    if kept.get("warm_start_from"):
        lines.append(("started from", f"model {kept['warm_start_from']}"))
    if run.metas:
        lines.append(("metas", ", ".join(f"{name} = {value:g}" for name, value in run.metas.items())))
    if run.design.get("dims"):
        lines.append(("dims", _pairs(run.design["dims"])))
    return lines


def _encoded(column: Preprocessed) -> str:
    """The text for one column; empty if it was not changed."""
    encode, filled, said = column.get("encode"), column.get("impute"), []
    if encode == "one_hot":
        categories = column.get("categories") or []
        other = " and other" if column.get("other") else ""
        said.append(f"one-hot, {len(categories)} categories{other}: {_some(categories, MAX_CATEGORIES)}")
    elif encode == "hash":
        said.append(f"categories hashed into {column.get('buckets')} columns")
    elif isinstance(encode, list):
        said.append(_some(encode))
    if encode in ("one_hot", "hash") and column.get("indicator"):
        said.append("NULL is a category of its own")
    # all zeros: a NULL has a 1 in no category
    elif encode in ("one_hot", "hash") and filled is not None and not any(filled):
        said.append("NULL is none of them")
    elif filled is not None:
        marked = " and has an indicator" if column.get("indicator") else ""
        listed = [f"{one:.6g}" for one in (filled[:-1] if marked else filled)]
        said.append(f"NULL counts as {_some(listed, MAX_CATEGORIES)}{marked}")
    return "; ".join(said)


def _some(names: Sequence[object], most: int = MAX_NAMES) -> str:
    return ", ".join(str(name) for name in names[:most]) + (", …" if len(names) > most else "")


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
