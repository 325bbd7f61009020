"""Routes of the window: what each page reads, and what each button does.

In: a `Database`. Out: the application, behind its `Guard`. Pages that evaluate a model or explain a training do so
after a click, since a query or a view may take long, and runs with the rights of the session's role.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import cast
from urllib.parse import parse_qs, urlencode

import anyio
import psycopg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dana.client.activity import duration, read_curves, read_ended, read_running
from dana.client.connection import Connection
from dana.errors import DanaError, UsageError
from dana.metrics import BY_NAME, COUNTS
from dana.report import metrics
from dana.report.history import Run, read_run, thinned
from dana.report.prepared import prepared
from dana.report.stored import read_model
from dana.report.templates import environment, stylesheet
from dana.server.doctor import examine_session
from dana.session.calls import lines
from dana.session.sources import TABLES, table_of
from dana.ui.charts import live_chart, loss_chart, roofline_chart
from dana.ui.database import Database, Heard, activate, cancel, columns, keep_profile, mapped, settings, stored
from dana.ui.forms import FIELDS, FIRST, training
from dana.ui.guard import Guard
from hwgen.devices import device_names

LAST_RUNS = 20
LAST_JOBS = 50
POINTS = 120
"""Points of the curve of a running training."""
SECONDS = 1.0
"""Between two looks at the running trainings."""
ANSWER = 5.0
"""Seconds for an answer of each shard."""
MAX_BODY = 1 << 20
"""Bytes of a form."""
MAX_NUMBERS = 1 << 20
"""Numbers of a model up to which a page reads its parameters."""
MAX_TERMS = 300

TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "txt": "text/plain"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request: its fields, a session, and what the server reports meanwhile."""

    fields: Mapping[str, Sequence[str]]
    db: Connection
    heard: Heard

    def text(self, name: str) -> str:
        """A field; empty if it was not sent."""
        return self.fields.get(name, [""])[0]

    def number(self, name: str) -> int:
        """A field that is a number of a row.

        Raises
        ------
        UsageError
            It is none.
        """
        text = self.text(name)
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise UsageError(f"{name}: a whole number is expected, not {text!r}")
        return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A template with its values."""

    name: str
    values: dict[str, object]


Answer = Callable[[Asked], Page | str]
"""What a route returns: a page, or the path to go to."""


def application(database: Database, token: str) -> Guard:
    """The whole application."""
    routes = [
        Route("/static/{name}", _static),
        Route("/events", _Endpoint(database, _activity).stream),
        # it creates a rule, and rolls it back
        Route("/health", _Endpoint(database, _health, writes=True).get),
        *(Route(path, _Endpoint(database, answer).get) for path, answer in READING.items()),
        *(Route(path, _Endpoint(database, answer).post, methods=["POST"]) for path, answer in COMPUTING.items()),
        *(
            Route(path, _Endpoint(database, answer, writes=True).post, methods=["POST"])
            for path, answer in WRITING.items()
        ),
    ]
    return Guard(Starlette(routes=routes), token)


class _Endpoint:
    """Serves an answer of this module: session, template, errors."""

    def __init__(self, database: Database, answer: Answer, *, writes: bool = False) -> None:
        self._database, self._answer, self._writes = database, answer, writes

    async def get(self, request: Request) -> Response:
        return await run_in_threadpool(self._respond, request, _parsed(request.url.query))

    async def post(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY:
                return PlainTextResponse("The form is too long.", 413)
        return await run_in_threadpool(self._respond, request, _parsed(body.decode("utf-8", "replace")))

    async def stream(self, request: Request) -> Response:
        """Server-sent events: the page's fragment whenever it has changed."""

        async def events() -> AsyncIterator[str]:
            last = ""
            while True:
                text = bytes((await run_in_threadpool(self._respond, request, {}, fragment=True)).body).decode()
                if text != last:
                    yield "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"
                else:
                    yield ": nothing new\n\n"  # the connection fails once the browser is gone
                last = text
                await anyio.sleep(SECONDS)

        return StreamingResponse(events(), media_type="text/event-stream")

    def _respond(self, request: Request, fields: dict[str, list[str]], *, fragment: bool = False) -> Response:
        # htmx puts an answer into the page that sent the request
        frame = "pages/fragment.html" if fragment or "hx-request" in request.headers else "pages/base.html"
        heard, where = Heard(), {"database": "", "role": ""}
        try:
            with self._database.session(heard, writes=self._writes) as db:
                where = {"database": db.session.info.dbname, "role": db.session.info.user}
                answer = self._answer(Asked(fields=fields, db=db, heard=heard))
            if isinstance(answer, str):
                return RedirectResponse(f".{answer}", 303)
            code = 200
        except (psycopg.Error, DanaError) as error:
            code, answer = 400, Page(name="error", values=_described(error))
        page = TEMPLATES.get_template(f"pages/{answer.name}.html")
        about = {**where, "frame": frame, "path": request.url.path, "heard": list(heard.texts)}
        return HTMLResponse(page.render(answer.values | about), code)


def _parsed(text: str) -> dict[str, list[str]]:
    # PostgreSQL's texts have no NUL
    return parse_qs(text.replace("%00", ""), keep_blank_values=True, max_num_fields=2000)


def _described(error: psycopg.Error | DanaError) -> dict[str, object]:
    if isinstance(error, psycopg.Error) and error.diag.message_primary is None:
        # libpq's own messages quote the connection string
        return {
            "message": "the database cannot be reached, or closed the connection",
            "hint": "dana doctor finds out why.",
            "sqlstate": error.sqlstate,
        }
    if isinstance(error, psycopg.Error):
        message = ": ".join(text for text in (error.diag.message_primary, error.diag.message_detail) if text)
        return {"message": message, "hint": error.diag.message_hint or "", "sqlstate": error.sqlstate}
    if isinstance(error, UsageError):
        return {"message": error.message, "hint": error.hint, "sqlstate": None}
    return {"message": str(error), "hint": "", "sqlstate": None}


def _static(request: Request) -> Response:
    found = STATIC.get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("There is no such file.", 404)
    # they change with the release alone, but the address does not: the browser asks again after an hour
    return Response(found[0], media_type=found[1], headers={"cache-control": "max-age=3600"})


def _activity(asked: Asked) -> Page:
    session = asked.db.session
    curves, _ = read_curves(session, POINTS)
    running = [(one, live_chart(curves.get(one.pid, []))) for one in read_running(session)]
    return Page(name="activity", values={"running": running, "ended": read_ended(session, LAST_RUNS)})


def _run(asked: Asked) -> Page:
    run = read_run(asked.db.session, asked.number("id"))
    return Page(name="run", values=_about_run(asked, run))


def _about_run(asked: Asked, run: Run) -> dict[str, object]:
    session = asked.db.session
    size = session.execute(
        "SELECT pg_catalog.max(pg_catalog.cardinality(m.weights)) FROM dana.model AS m "
        "WHERE m.name = %s::text AND m.version = %s::integer",
        (run.model, run.model_version),
    ).fetchall()[0][0]
    model = read_model(session, run) if (size or 0) <= MAX_NUMBERS else None
    return {
        "run": run,
        "chart": loss_chart((run.model, run)),
        "epochs": thinned(run.curve),
        "prepared": prepared(run, model),
        "counted": run.counted.get("cycles", 0),
    }


def _models(asked: Asked) -> Page:
    found = asked.db.models()
    counts: dict[str, int] = {}
    for one in found:
        counts[one.name] = counts.get(one.name, 0) + 1
    return Page(name="models", values={"models": [one for one in found if one.active], "counts": counts})


def _model(asked: Asked) -> Page:
    name = asked.text("name")
    versions = [one for one in asked.db.models() if one.name == name]
    if not versions:
        raise UsageError(f"model {name} does not exist, or is not yours to use")
    chosen = asked.number("version") if asked.text("version") else next(one.version for one in versions if one.active)
    model = next((one for one in versions if one.version == chosen), None)
    if model is None:
        raise UsageError(f"model {name}@{chosen} does not exist, or is not yours to use")
    kept = stored(asked.db.session, name, chosen)
    coefficients = asked.db.coefficients(name, chosen) if kept.numbers <= MAX_NUMBERS else []
    values: dict[str, object] = {
        "model": model,
        "versions": versions,
        "kept": kept,
        "coefficients": coefficients[:MAX_TERMS],
        "more": len(coefficients) > MAX_TERMS,
        "run": None,
    }
    if model.run is not None:
        values |= _about_run(asked, read_run(asked.db.session, model.run))
    return Page(name="model", values=values)


def _evaluate(asked: Asked) -> Page:
    found = asked.db.evaluate(f"{asked.text('name')}@{asked.number('version')}")
    numbers = {name: each for name, each in found.items() if name in BY_NAME or name in ("classes", *COUNTS)}
    values = {"single": metrics.single(numbers), "part": found.get("part"), "rows": found.get("rows")}
    return Page(name="metrics", values=values | {"tables": found.tables(), "left_out": metrics.left_out(found)})


def _drift(asked: Asked) -> Page:
    source = table_of(asked.db.session, asked.text("source"))
    arguments = {"model": f"{asked.text('name')}@{asked.number('version')}", "source": source}
    return Page(name="drift", values={"rows": lines(asked.db.session, "dana_drift", arguments), "source": source})


def _pair(asked: Asked) -> list[tuple[str, int]]:
    chosen = [one.rpartition("@") for one in asked.fields.get("of", [])]
    if len(chosen) != 2 or not all(name and version.isascii() and version.isdigit() for name, _, version in chosen):
        raise UsageError("choose two versions to compare")
    return [(name, int(version)) for name, _, version in chosen]


def _compare(asked: Asked) -> Page:
    chosen = _pair(asked)
    kept = [stored(asked.db.session, name, version) for name, version in chosen]
    found = [
        next(one for one in asked.db.models() if (one.name, one.version) == (name, version)) for name, version in chosen
    ]
    names = [f"{name}@{version}" for name, version in chosen]
    runs = [(name, read_run(asked.db.session, one.run)) for name, one in zip(names, found, strict=True) if one.run]
    learnt = [
        {(one.label, one.term): one.coefficient for one in asked.db.coefficients(name, version)}
        if each.numbers <= MAX_NUMBERS
        else {}
        for (name, version), each in zip(chosen, kept, strict=True)
    ]
    terms = list(dict.fromkeys(term for one in learnt for term in one))[:MAX_TERMS]
    values: dict[str, object] = {
        "names": names,
        "models": found,
        "kept": kept,
        "chart": loss_chart(*runs) if len(runs) == 2 else None,
        "terms": [(label, term, [one.get((label, term)) for one in learnt]) for label, term in terms],
    }
    return Page(name="compare", values=values)


def _compare_metrics(asked: Asked) -> Page:
    names = [f"{name}@{version}" for name, version in _pair(asked)]
    found = [asked.db.evaluate(name) for name in names]
    rows = []
    for name in dict.fromkeys(name for one in found for name in one):
        each = [one.get(name) for one in found]
        if name not in BY_NAME or not all(isinstance(one, float | int) for one in each):
            continue
        numbers = cast("list[float]", each)
        best = (min if BY_NAME[name].less else max)(numbers)
        rows.append((BY_NAME[name].title, [(one, one == best and numbers[0] != numbers[1]) for one in numbers]))
    parts = [(one.get("part"), one.get("rows")) for one in found]
    return Page(name="compare_metrics", values={"names": names, "rows": rows, "parts": parts})


def _train(asked: Asked) -> Page:
    session = asked.db.session
    rules = [row[0] for row in session.execute("SELECT name FROM dana.rule ORDER BY name").fetchall()]
    values: dict[str, object] = {
        "rules": rules,
        "tables": [row[2] for row in session.execute(TABLES).fetchall()],
        "fields": FIELDS,
        "first": FIRST,
        "devices": device_names(),
        "rule": asked.text("rule"),
        "source": asked.text("source"),
    }
    return Page(name="train", values=values)


def _columns(asked: Asked) -> Page:
    source = asked.text("source")
    found = columns(asked.db.session, table_of(asked.db.session, source)) if source else []
    return Page(name="columns", values={"columns": found})


def _plan(asked: Asked) -> Page:
    rule, source, options = training(asked.fields)
    plan = asked.db.explain(
        rule, source, device=asked.text("device") or None, search=bool(asked.text("search")), format="json", **options
    )
    # what is started is what was shown
    fields = [(name, one) for name, each in asked.fields.items() if name not in ("device", "search") for one in each]
    return Page(name="plan", values={"plan": plan, "chart": roofline_chart(plan), "fields": fields})


def _start(asked: Asked) -> str:
    rule, source, options = training(asked.fields)
    return "/jobs?" + urlencode({"started": asked.db.start("train", rule, source, **options)})


def _jobs(asked: Asked) -> Page:
    return Page(name="jobs", values={"jobs": asked.db.jobs(LAST_JOBS), "started": asked.text("started")})


def _shards(asked: Asked) -> Page:
    return Page(name="shards", values={"mapped": mapped(asked.db.session)})


def _ask_shards(asked: Asked) -> Page:
    source = table_of(asked.db.session, asked.text("source"))
    return Page(name="shard_answers", values={"source": source, "shards": asked.db.shards(source, timeout=ANSWER)})


def _health(asked: Asked) -> Page:
    session = asked.db.session
    findings = list(examine_session(session, "psql -c"))
    # only now: the library, which declares them, is loaded by its first function
    return Page(name="health", values={"findings": findings, "settings": settings(session)})


def _cancel(asked: Asked) -> str:
    cancel(asked.db.session, asked.number("pid"))
    return "/"


def _cancel_job(asked: Asked) -> str:
    asked.db.cancel(asked.number("job"))
    return "/jobs"


def _activate(asked: Asked) -> str:
    activate(asked.db.session, asked.text("name"), asked.number("version"))
    return _model_path(asked)


def _profile(asked: Asked) -> str:
    keep_profile(asked.db.session, asked.text("name"))
    return _model_path(asked)


def _model_path(asked: Asked) -> str:
    return "/model?" + urlencode({"name": asked.text("name"), "version": asked.number("version")})


READING: dict[str, Answer] = {
    "/": _activity,
    "/run": _run,
    "/models": _models,
    "/model": _model,
    "/compare": _compare,
    "/train": _train,
    "/columns": _columns,
    "/jobs": _jobs,
    "/shards": _shards,
}
COMPUTING: dict[str, Answer] = {
    "/evaluate": _evaluate,
    "/drift": _drift,
    "/compare": _compare_metrics,
    "/plan": _plan,
    "/shards": _ask_shards,
}
"""Forms: long fields, and work only after a click."""
WRITING: dict[str, Answer] = {
    "/start": _start,
    "/cancel": _cancel,
    "/cancel-job": _cancel_job,
    "/activate": _activate,
    "/profile": _profile,
}

TEMPLATES = environment(
    "dana.ui",
    {
        "number": metrics.number,
        "duration": duration,
        "moment": lambda when: "" if when is None else f"{when:%Y-%m-%d %H:%M:%S}",
        "query": lambda values: urlencode(values),
    },
)

STATIC = {
    one.name: (one.read_bytes(), TYPES[one.name.rpartition(".")[2]])
    for one in files("dana.ui").joinpath("static").iterdir()
} | {"style.css": (stylesheet().encode(), TYPES["css"])}
