"""Runs the tests in several processes, which are forked once all tests are collected: none imports anything again.

The first process takes files from the beginning of the order, the others from its end. A process that ends within a
test makes it fail and ends the run.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn, cast

import pytest

FORK = get_context("fork")

UNIT = pytest.StashKey[str]()
"""Of a test: the name of its unit, tests of one unit run in one process; without it, the unit is the file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", default=1, type=int, metavar="N", help="run the files in so many processes (1)")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    config = session.config
    if config.getoption("processes") < 2 or config.option.collectonly or session.testsfailed:
        return None
    units: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        units.setdefault(item.stash.get(UNIT, str(item.path)), []).append(item)
    run(session, list(units.values()), config.getoption("processes"))
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class Queue:
    """Units of tests, which processes take that are forked after it is made."""

    def __init__(self, units: Sequence[Sequence[pytest.Item]]) -> None:
        self._units = units
        self._taken = FORK.Array("i", 2)  # from the beginning, from the end

    def tests(self, *, first: bool) -> Iterator[pytest.Item]:
        """Take units until none is left; a unit is taken when its first test is asked for."""
        while True:
            with self._taken.get_lock():
                begin, end = self._taken
                if begin + end >= len(self._units):
                    return
                self._taken[not first] += 1
            yield from self._units[begin if first else -1 - end]

    def close(self) -> None:
        """Leave the units that no process has taken."""
        with self._taken.get_lock():
            self._taken[0] = len(self._units)


@dataclass(slots=True, kw_only=True)
class Child:
    """A process, and the test that it runs."""

    pid: int
    reports: Connection
    test: tuple[str, tuple[str, int | None, str]] = ("", ("", None, ""))


class Sender:
    """Plugin of a child: sends what happens to the parent."""

    def __init__(self, config: pytest.Config, reports: Connection) -> None:
        self._config = config
        self._reports = reports

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._reports.send(("start", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        one = warning_message  # as text: a message may be an object that cannot be pickled
        self._reports.send(
            ("warning", (str(one.message), one.category, one.filename, one.lineno, when, nodeid, location))
        )


def run(session: pytest.Session, units: Sequence[Sequence[pytest.Item]], count: int) -> None:
    """Run the tests in ``count`` processes, and report here what they report."""
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one folder, with one for each child
    if (terminal := session.config.pluginmanager.getplugin("terminalreporter")) is not None:
        terminal.showfspath = False  # a line for each test, since several files run at a time
    queue = Queue(units)
    gc.collect()
    gc.freeze()  # else each child's garbage collector would write to, and so copy, all that is imported
    children: dict[int, Child] = {}
    for number in range(count):
        receiver, sender = FORK.Pipe(duplex=False)
        if (pid := os.fork()) == 0:
            for child in children.values():
                child.reports.close()
            receiver.close()
            _child(session, queue, number, sender)
        sender.close()
        children[os.pidfd_open(pid)] = Child(pid=pid, reports=receiver)
    try:
        while children:
            ready = wait([*children, *(child.reports for child in children.values())])
            for ended, child in list(children.items()):
                _read(session, child)
                if ended in ready:
                    _read(session, child)  # what came between
                    os.close(ended)
                    del children[ended]
                    status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
                    if status != 0:
                        _report_end(session, child, status)
            if session.shouldfail or session.shouldstop:
                queue.close()
    finally:
        queue.close()
        for child in children.values():
            child.reports.close()  # its next report ends it
            os.waitpid(child.pid, 0)


def _read(session: pytest.Session, child: Child) -> None:
    hook = session.config.hook
    try:
        while child.reports.poll():
            kind, data = child.reports.recv()
            if kind == "start":
                child.test = data
                hook.pytest_runtest_logstart(nodeid=data[0], location=data[1])
            elif kind == "report":
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
            else:
                text, category, filename, line, when, nodeid, location = data
                message = warnings.WarningMessage(text, category, filename, line)
                hook.pytest_warning_recorded.call_historic(
                    kwargs={"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
                )
    except EOFError:  # it ends
        pass


def _report_end(session: pytest.Session, child: Child, status: int) -> None:
    """Make the last test of a process that failed a failure, and end the run."""
    nodeid, location = child.test
    text = f"the process that ran the tests ended with status {status} (below 0: a signal) in this test, or after it"
    report = pytest.TestReport(
        nodeid=nodeid, location=location, keywords={}, outcome="failed", longrepr=text, when="call"
    )
    session.config.hook.pytest_runtest_logreport(report=report)
    session.shouldfail = text


def _child(session: pytest.Session, queue: Queue, number: int, reports: Connection) -> NoReturn:
    status = 1
    try:
        _separate(session.config, number)
        session.config.pluginmanager.register(Sender(session.config, reports))
        try:
            tests: Iterator[pytest.Item | None] = chain(queue.tests(first=number == 0), [None])
            # the next file is taken before the last test of one: it decides which fixtures stay
            for test, following in pairwise(tests):
                session.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    break
        finally:
            session._setupstate.teardown_exact(None)
        status = 0
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the parent has ended, or will report it
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        # not sys.exit, which would run what the parent has registered for its own end
        os._exit(status)


def _separate(config: pytest.Config, number: int) -> None:
    """Give the child an output and a folder for temporary files of its own."""
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"process-{number}"
    factory._basetemp.mkdir(mode=0o700)
    capture = cast(Any, config.pluginmanager.getplugin("capturemanager"))
    capture.stop_global_capturing()
    # the parent prints what is reported; the file that holds what a test prints has one position for all that have it
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    capture.start_global_capturing()
    capture.suspend_global_capture()
