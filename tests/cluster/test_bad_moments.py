"""What goes wrong at a shard or on the way to it, at any moment, and what is left behind: nothing."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from dana.server.embedded import EmbeddedServer
from tests.cluster.conftest import add, everywhere, fetched, folder, left
from tests.postgres.cluster import answers
from tests.servers import MAJORS

Change = Callable[[bytes, int], bytes | Sequence[bytes] | None]
"""Of what the server sends, and how much it has sent before: what arrives, in several pieces with a time between them;
None ends the connection."""


@contextmanager
def proxy(dsn: str, change: Change) -> Iterator[tuple[str, str]]:
    """Host and port of a network to a server that changes what the server sends."""
    ends: list[socket.socket] = []

    def forward(source: socket.socket, target: socket.socket, change: Change) -> None:
        before = 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                changed = change(data, before)
                before += len(data)
                if changed is None:
                    break
                for piece in [changed] if isinstance(changed, bytes) else changed:
                    target.sendall(piece)
                    time.sleep(0 if isinstance(changed, bytes) else 0.2)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client = listening.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{folder(dsn)}/.s.PGSQL.5432")
                ends.extend((client, server))
                for arguments in ((client, server, lambda data, _: data), (server, client, change)):
                    threading.Thread(target=forward, args=arguments, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield "127.0.0.1", str(listening.getsockname()[1])
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for end in ends:
                # a thread that reads keeps a closed socket open
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


def quiet(data: bytes, before: int) -> bytes:
    return data if before < 50_000 else b""


def slow(data: bytes, before: int) -> bytes:
    time.sleep(0.002)
    return data


def cut(data: bytes, before: int) -> bytes | None:
    return data if before < 50_000 else None


def long(data: bytes, before: int) -> bytes:
    """The first message of the copy claims to have 1 GB."""
    at = data.find(b"PGCOPY")
    return data if at < 4 else data[: at - 4] + b"\x3f\xff\xff\xff" + data[at:]


def flood(data: bytes, before: int) -> bytes:
    """The first message of the copy has 1 GB, which the shard sends."""
    at = data.find(b"PGCOPY")
    return data if at < 4 else data[: at - 4] + b"\x3f\xff\xff\xff" + bytes((1 << 30) - 1)


class Trickle:
    """After what a message begins with, one byte after the other."""

    def __init__(self, begins: bytes | re.Pattern[bytes] = b"PGCOPY") -> None:
        self.begins, self.began = re.compile(begins), False

    def __call__(self, data: bytes, before: int) -> bytes | list[bytes]:
        found = None if self.began else self.begins.search(data)
        self.began = self.began or found is not None
        at = 0 if found is None else found.end()
        return [data[:at], *(data[i : i + 1] for i in range(at, len(data)))] if self.began else data


MERGES = re.compile(rb"d(\0\0..)M", re.DOTALL)
"""What a part of a training merged."""


def turned(data: bytes, before: int) -> bytes:
    return data if before < 50_000 else bytes(data[:64]) + bytes(each ^ 0xFF for each in data[64:])


class Silent:
    """The copy ends with its first message, and the statement never."""

    def __init__(self) -> None:
        self.ended = False

    def __call__(self, data: bytes, before: int) -> bytes:
        at = data.find(b"PGCOPY")
        if self.ended or at < 5:
            return b"" if self.ended else data
        self.ended = True
        return data[: at - 5] + b"c\0\0\0\4"


def busy(shards: list[str]) -> bool:
    """Whether a connection for pages is left on any of the servers."""
    return any(fetched(dsn, "SELECT FROM pg_stat_activity WHERE application_name = 'dana'") for dsn in shards)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (quiet, r"no message within 0\.5 s"),
        (cut, "server closed the connection unexpectedly"),
        (Trickle(), r"no message within 0\.5 s"),
        (long, r"no message within 0\.5 s"),
        (Silent(), r"no answer within 0\.5 s"),
        (turned, "lost synchronization|has no pages|no message within|corrupt"),
    ],
)
def test_a_shard_that_fails_on_the_way_is_named_and_nothing_is_left(
    parent: psycopg.Connection, shards: list[str], change: Change, message: str
) -> None:
    with proxy(shards[1], change) as (host, port):
        add(parent, 2, host, port)
        with pytest.raises(psycopg.Error, match=message) as failed:
            parent.execute("SELECT dana_gather('whole', 'kept', 0.5)")
        assert failed.value.sqlstate in ("08006", "08P01", "XX001")
        assert "shard 2 (public.rows_2 on server_2)" in f"{failed.value} {failed.value.diag.context}"
    wait_for_nothing(shards)


def test_a_message_of_a_gigabyte_is_no_pages(parent: psycopg.Connection, shards: list[str]) -> None:
    with proxy(shards[1], flood) as (host, port):
        add(parent, 2, host, port)
        with pytest.raises(psycopg.Error, match=r"shard 2 \(.*\): a message of 10737418\d\d bytes has no pages"):
            parent.execute("SELECT dana_gather('whole', 'kept', 30)")
    wait_for_nothing(shards)


NETWORK = {"quiet": quiet, "slow": slow, "cut": cut, "long": long, "turned": turned}
SESSION = {"session": "pg_terminate_backend", "cancel": "pg_cancel_backend"}
BACKEND = {"backend": signal.SIGTERM, "stopped": signal.SIGSTOP, "crash": signal.SIGKILL}
SERVER = {"frozen": signal.SIGSTOP, "shutdown": signal.SIGQUIT}
"""What happens: on the way to a shard, to the session that gathers, to a shard's backend, to its postmaster."""

DEAR = ("crash", "shutdown")
"""After these a server has to start again."""


def server_of(dsn: str) -> EmbeddedServer:
    return EmbeddedServer.at(Path(folder(dsn)).parents[1], MAJORS[-1])


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def disturbed(kind: str, after: float, shards: list[str], number: int, pid: int) -> Iterator[None]:
    """Shard ``number``, or the session ``pid`` on the first server, meets with what ``kind`` names after so long."""
    victim = shards[number - 1]
    server, hit = server_of(victim), []

    def strike() -> None:
        if kind in SESSION:
            fetched(shards[0], f"SELECT {SESSION[kind]}({pid})")
        elif kind in BACKEND:
            hit.extend(fetched(victim, "SELECT pid FROM pg_stat_activity WHERE application_name = 'dana'"))
        elif server.server_pid is not None:
            hit.append((server.server_pid,))
        for (process,) in hit:
            send(process, (BACKEND | SERVER)[kind])

    striker = threading.Timer(after, strike)
    if kind not in NETWORK:
        striker.start()
    try:
        yield
    finally:
        if kind not in NETWORK:
            striker.join()
        for (process,) in hit:
            send(process, signal.SIGCONT)
        if kind in DEAR:
            while not answers(victim):
                EmbeddedServer.start(server.root, server.major)  # nothing while its supervisor has not ended
                time.sleep(0.01)


def files(shards: list[str]) -> list[Path]:
    """Files of temporary tables at the server that trains: those of a backend have its number in their names."""
    return sorted((Path(folder(shards[0])).parent / "data" / "base").glob("*/t[0-9]*_*"))


def wait_for_nothing(shards: list[str]) -> None:
    """No backend, temporary table or file is left; an end is not waited for where it was caused."""
    for _ in range(1000):
        if not busy(shards) and not left(shards) and not files(shards):
            return
        time.sleep(0.01)
    raise AssertionError(f"left: {busy(shards)}, {left(shards)}, {files(shards)}")


@pytest.mark.parametrize("rounds", [1, 17])
def test_any_moment_ends_in_the_same_rows_or_a_named_error(
    whole: psycopg.Connection, shards: list[str], rounds: int
) -> None:
    """10 runs, or 204 with those after which a server has to start again; the moments follow from a seed."""
    everywhere(shards, "CHECKPOINT")  # commits of the embedded server do not wait for the disk
    rows = "SELECT md5(string_agg(r::text, ',' ORDER BY ctid)) FROM calm AS r"
    whole.execute("SELECT dana_gather('whole', 'calm')")
    undisturbed = whole.execute(rows).fetchall()
    whole.execute("DROP TABLE calm")
    kinds = sorted({*NETWORK, *SESSION, *BACKEND, *SERVER} - set(DEAR if rounds == 1 else ()))
    generator = random.Random(38)
    ends: dict[str, list[bool]] = {kind: [] for kind in kinds}
    for kind in kinds * rounds:
        number, after = generator.choice((2, 3)), generator.random() * 0.1
        with ExitStack() as stack:
            if kind in NETWORK:
                number = 2  # 3 has no rows
                host, port = stack.enter_context(proxy(shards[1], NETWORK[kind]))
            else:
                host, port = folder(shards[1]), "5432"
            session = stack.enter_context(psycopg.connect(shards[0], autocommit=True))
            session.execute(f"ALTER SERVER server_2 OPTIONS (SET host '{host}', SET port '{port}')")
            stack.enter_context(disturbed(kind, after, shards, number, session.info.backend_pid))
            failed: psycopg.Error | None = None
            try:
                session.execute("SELECT dana_gather('whole', 'calm', 0.4)")
                assert session.execute(rows).fetchall() == undisturbed
            except psycopg.Error as error:
                failed = error
        if failed is not None and kind not in SESSION:
            named = f"shard {number} (public.rows_{number} on server_{number})"
            assert named in f"{failed} {failed.diag.context}", kind
        ends[kind].append(failed is None)
        wait_for_nothing(shards)
    assert {kind for kind in NETWORK if any(ends[kind])} <= {"slow"}, ends
    assert any(any(ended) for ended in ends.values()), ends


def test_a_full_disk_leaves_nothing(whole: psycopg.Connection, shards: list[str]) -> None:
    everywhere(
        shards,
        "INSERT INTO rows SELECT -i - 100000 * {shard}, 0, 0, repeat('x', 900), {shard} "
        "FROM generate_series(1, 9000) AS i",
    )
    with psycopg.connect(shards[0], autocommit=True) as session:
        # no file may be longer, which a full disk is to this process alone; files of the WAL are no longer
        limit = f"prlimit --pid {session.info.backend_pid} --fsize={{}}:unlimited"
        server_of(shards[0]).account.run(limit.format(16 << 20))
        with pytest.raises(psycopg.Error, match="could not extend file"):
            session.execute("SELECT dana_gather('whole', 'kept')")
        server_of(shards[0]).account.run(limit.format("unlimited"))
        wait_for_nothing(shards)
        session.execute("SELECT dana_gather('whole', 'kept'); DROP TABLE kept")


@pytest.mark.parametrize(("kind", "message"), [("frozen", "08001"), ("stopped", "08006")])
def test_a_server_that_does_not_answer_is_named(
    whole: psycopg.Connection, shards: list[str], kind: str, message: str
) -> None:
    """Before it is connected to, or while it is asked; dana_shards() goes on to the others."""
    server = server_of(shards[2])
    assert server.server_pid is not None
    if kind == "frozen":
        os.kill(server.server_pid, signal.SIGSTOP)
        blocked = None
    else:
        blocked = psycopg.connect(shards[2])
        blocked.execute("LOCK TABLE rows")
    try:
        with pytest.raises(psycopg.Error, match=r"shard 3 \(.*\): no answer within 0\.3 s") as no:
            whole.execute("SELECT dana_gather('whole', timeout => 0.3)")
        assert no.value.sqlstate == message
        found = whole.execute("SELECT shard, reachable, error FROM dana_shards('whole', 0.3)").fetchall()
        assert found == [(1, True, None), (2, True, None), (3, kind == "stopped", "no answer within 0.3 s")]
    finally:
        if blocked is None:
            os.kill(server.server_pid, signal.SIGCONT)
        else:
            blocked.close()
    wait_for_nothing(shards)
