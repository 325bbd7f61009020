"""Carries the messages of a training in parts: from the server that leads it to the shards, and back.

In: a session on the server that leads, shards, the statement for each. Out: the row of the model that the leader
stored. It reads no message, except the leader's introduction and the byte that says what a message is
(`dana.worker.link`); merges go to all shards as they came, and are joined there.
"""

from __future__ import annotations

import json
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from dana.cluster.shards import CANCEL_TIMEOUT, Shard, ShardError
from dana.worker.link import ALIVE, ANSWER, COMMAND, INTRODUCTION, MERGES, listed

Introduction = Mapping[str, Any]
"""What the leader has decided about the columns before the parts begin: classes, features, preprocess."""

LOOK_MS = 1000
"""How long to wait before silent shards are looked for."""

OUT_OF_STEP = "the parts of the training are out of step"

LOST = "08006"
"""SQLSTATE of a connection that is lost."""

COPYING = (ExecStatus.COPY_BOTH, ExecStatus.COPY_IN, ExecStatus.COPY_OUT)
"""In these the connection is until both sides have ended their copy."""


class _Lost:
    """Names the server in an error of libpq. A round enters it several times, so it is no generator.

    An error that names its shard already passes.
    """

    __slots__ = ("_peer",)

    def __init__(self, peer: _Peer) -> None:
        self._peer = peer

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, psycopg.Error) and not isinstance(error, ShardError):
            raise self._peer._error(str(error), LOST) from error


@dataclass(slots=True, eq=False, kw_only=True)
class _Peer:
    """A connection on which a part of the training runs; shard None: the leader."""

    session: psycopg.Connection
    shard: Shard | None
    pgconn: PGconn = field(init=False)
    _lost: _Lost = field(init=False, repr=False)
    heard: float = 0.0
    """When its last message was complete."""
    unread: bool = False
    """Whether libpq has read what may be a message while something else was waited for, which no poll reports."""
    result: PGresult | None = None
    """What the statement returned; it runs until then."""

    def __post_init__(self) -> None:
        self.pgconn = self.session.pgconn
        self._lost = _Lost(self)

    def begin(self, statement: str) -> None:
        with self._lost:
            self.pgconn.send_query(statement.encode())
            self._flush()
        result = self._result()
        if result is None or result.status != ExecStatus.COPY_BOTH:
            raise self._error("the extension there does not train in parts", "0A000")

    def send(self, message: bytes) -> None:
        with self._lost:
            self.pgconn.put_copy_data(message)
            self._flush()

    def _flush(self) -> None:
        """Hand over all that was sent: a server that was stopped takes no more than its buffers hold."""
        until = self._deadline()
        while self.pgconn.flush():
            self._wait(select.POLLIN | select.POLLOUT, until)

    def _deadline(self) -> float | None:
        return None if self.shard is None else time.monotonic() + self.shard.timeout

    def _wait(self, events: int, until: float | None) -> None:
        ready = select.poll()
        ready.register(self.pgconn.socket, events)
        left = None if until is None else until - time.monotonic()
        if left is None:
            while not ready.poll(LOOK_MS):  # a signal that another thread got is handled between two waits
                pass
        elif left <= 0 or not ready.poll(1000 * left):
            raise self._silent()
        self.pgconn.consume_input()
        self.unread = True

    def _silent(self) -> psycopg.Error:
        assert self.shard is not None
        return ShardError(self.shard, f"no message within {self.shard.timeout:g} s", LOST)

    def read(self) -> None:
        """Have libpq read what has come; it may be a message."""
        with self._lost:
            self.pgconn.consume_input()

    def messages(self) -> Iterator[bytes]:
        """What libpq has read, the end of the statement aside; an error of the server is raised."""
        self.unread = False
        while self.result is None:
            with self._lost:
                count, data = self.pgconn.get_copy_data(1)
            if count == 0:
                return
            self.heard = time.monotonic()
            if count < 0:
                self._end()
            elif data != ALIVE:
                yield bytes(data)

    def _end(self) -> None:
        result = self._result()
        while result is not None:
            if result.status in COPYING:
                with self._lost:
                    self.pgconn.put_copy_end()
                    self._flush()
            else:
                self.result = result
            result = self._result()
        if self.result is None:
            raise self._error("the statement ended without a result", "08P01")

    def _next(self) -> PGresult | None:
        """The next result. libpq's own wait has no deadline, and no Ctrl-C ends it."""
        until = self._deadline()
        with self._lost:
            while self.pgconn.is_busy():
                self._wait(select.POLLIN, until)
            return self.pgconn.get_result()

    def _result(self) -> PGresult | None:
        result = self._next()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            with suppress(ShardError):  # of a shard that does not end its statement
                while self._next() is not None:  # the session is idle afterwards
                    pass
            if self.shard is None:
                raise psycopg.errors.error_from_result(result, encoding="utf-8")
            state = result.error_field(DiagnosticField.SQLSTATE)
            message = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message
            raise self._error(message.decode(errors="replace"), "08006" if state is None else state.decode())
        return result

    def _error(self, message: str, sqlstate: str) -> psycopg.Error:
        if self.shard is not None:
            return ShardError(self.shard, message, sqlstate)
        error = psycopg.OperationalError(f"the server that trains: {message}")
        error.sqlstate = sqlstate
        return error

    def abort(self) -> None:
        """End what runs, and read all that it returned, so that the session is free."""
        with suppress(psycopg.Error):  # of a server that is gone
            self.session.cancel_safe(timeout=CANCEL_TIMEOUT)
            while (result := self._next()) is not None:
                if result.status == ExecStatus.COPY_BOTH:
                    self.pgconn.put_copy_end(b"another part failed")
                    self._flush()
                until = self._deadline()
                while result.status in COPYING and (count := self.pgconn.get_copy_data(1)[0]) >= 0:
                    if count == 0:
                        self._wait(select.POLLIN, until)


def relay(
    session: psycopg.Connection,
    shards: Sequence[Shard],
    leads: str,
    follows: Callable[[Shard, Introduction], str],
) -> str:
    """Run a training in parts; what the leader's statement returned.

    Parameters
    ----------
    session
        On the server that leads, in a transaction.
    leads
        The leader's statement.
    follows
        Returns the statement for a shard, given what the leader says of the columns (`dana.worker.link.WorkerLink`).

    Raises
    ------
    ShardError
        An error of a shard, or none of its messages for its timeout.
    psycopg.Error
        An error of the server that leads.
    """
    leader = _Peer(session=session, shard=None)
    followers = [_Peer(session=shard.session, shard=shard) for shard in shards]
    before = [(one.pgconn, one.pgconn.nonblocking) for one in (leader, *followers)]
    for pgconn, _ in before:
        pgconn.nonblocking = 1
    try:
        leader.begin(leads)
        _Relay(leader, followers).run(follows)
    except BaseException:
        # a failed statement is over; any other runs until its next message
        leader.abort()
        raise
    finally:
        for pgconn, nonblocking in before:
            with suppress(psycopg.Error):  # of a connection that is lost
                pgconn.nonblocking = nonblocking
    assert leader.result is not None
    return (leader.result.get_value(0, 0) or b"").decode()


class _Relay:
    """The leader and its followers, while the training runs."""

    def __init__(self, leader: _Peer, followers: Sequence[_Peer]) -> None:
        self._leader, self._followers = leader, followers
        self._peers = {one.pgconn.socket: one for one in (leader, *followers)}
        self._poll = select.poll()
        self._poll.register(leader.pgconn.socket, select.POLLIN)

    def run(self, follows: Callable[[Shard, Introduction], str]) -> None:
        introduction = self._of_leader(INTRODUCTION)
        if introduction is None:
            return
        for one in self._followers:
            assert one.shard is not None
            one.begin(follows(one.shard, json.loads(introduction)))
            self._poll.register(one.pgconn.socket, select.POLLIN)
        self._answers()  # each is ready
        self._leader.send(INTRODUCTION)  # libpq sends no empty message
        while (command := self._of_leader(COMMAND)) is not None:
            for one in self._followers:
                one.send(command)
            self._leader.send(listed(self._answers()))

    def _of_leader(self, kind: bytes) -> bytes | None:
        """The leader's next message; None: it has ended."""
        found = self._collect([self._leader])[self._leader]
        if found is None:
            return None
        if found[:1] != kind:
            raise self._out_of_step(self._leader, found)
        return found[1:]

    def _answers(self) -> list[bytes]:
        """The followers' answers to a command; until then they exchange merges."""
        while True:
            found = self._collect(self._followers)
            # of one that has ended it is an empty answer
            said = {one: found[one] or ANSWER for one in self._followers}
            self._require_alike({one: message[:1] for one, message in said.items()}, "it sent a message {}, {} {}")
            kind = said[self._followers[0]][:1]
            if kind == ANSWER:
                return [message[1:] for message in said.values()]
            if kind != MERGES:
                raise self._out_of_step(self._followers[0], kind)
            self._require_alike(
                {one: len(message) - 1 for one, message in said.items()}, "its sums have {} bytes, those of {} {}"
            )
            every = b"".join(message[1:] for message in said.values())
            for one in self._followers:
                one.send(every)

    def _require_alike(self, said: Mapping[_Peer, object], text: str) -> None:
        """Raise an error that names the shard that does not say what most say."""
        if len(set(said.values())) == 1:
            return
        common, _ = Counter(said.values()).most_common(1)[0]
        odd = next(one for one in said if said[one] != common)
        like = next(one for one in said if said[one] == common)
        raise odd._error(f"{OUT_OF_STEP}: {text.format(said[odd], like.shard, common)}", "08P01")

    def _collect(self, peers: Sequence[_Peer]) -> dict[_Peer, bytes | None]:
        """One message of each, None of those that have ended; of others none may come."""
        found: dict[_Peer, bytes | None] = {}
        began = time.monotonic()
        for one in peers:
            one.heard = began  # it says nothing before it is asked
        ready = [one for one in peers if one.unread or one.result is not None]
        while True:
            for one in ready:
                self._take(one, peers, found)
            if len(found) == len(peers):
                return found
            self._check_alive([one for one in peers if one not in found])
            ready = [self._peers[descriptor] for descriptor, _ in self._poll.poll(LOOK_MS)]
            for one in ready:
                one.read()

    def _take(self, one: _Peer, peers: Sequence[_Peer], found: dict[_Peer, bytes | None]) -> None:
        """Take what libpq has read of a peer."""
        ended = one.result is not None
        for message in () if ended else one.messages():
            if one in found or one not in peers:
                raise self._out_of_step(one, message)
            found[one] = message
        if one.result is None:
            return
        if not ended:
            self._poll.unregister(one.pgconn.socket)
        if one in peers:
            found.setdefault(one, None)
        elif one is self._leader:
            raise self._out_of_step(one, b"")

    def _check_alive(self, peers: Sequence[_Peer]) -> None:
        for one in peers:
            if one.shard is not None and time.monotonic() - one.heard > one.shard.timeout:
                raise one._silent()

    def _out_of_step(self, peer: _Peer, message: bytes) -> psycopg.Error:
        what = "an end" if not message else f"a message {message[:1]!r}"
        return peer._error(f"{OUT_OF_STEP}: it sent {what}", "08P01")
