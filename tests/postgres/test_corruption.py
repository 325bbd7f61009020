"""Pages that are not what they should be: refused with the page's number, by the backend or by the worker."""

from __future__ import annotations

import json
import random
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from dana.server.places import CHECKOUT
from tests.postgres.cluster import Cluster
from tests.postgres.test_predict_plans import predictor
from tests.scale import SEED, scaled

HERE = Path(__file__).parent
ROWS = 226 * 3
"""Three pages."""

LINE_POINTER = 24 + 4 * 5
"""Offset of the sixth line pointer (bufpage.h)."""


def line_pointer(offset: int, length: int, flags: int = 1) -> bytes:
    return struct.pack("<I", offset | flags << 15 | length << 17)


DAMAGES: dict[str, tuple[int, bytes]] = {
    "pointer outside the page": (LINE_POINTER, line_pointer(8176, 32)),
    "pointer into the header": (LINE_POINTER, line_pointer(8, 32)),
    "misaligned pointer": (LINE_POINTER, line_pointer(4001, 32)),
    "tuple without a header": (LINE_POINTER, line_pointer(4000, 3)),
    "page header": (12, struct.pack("<H", 9000)),  # more line pointers than fit: PostgreSQL looks when it reads
}


@pytest.mark.parametrize("frozen", [False, True], ids=["backend", "worker"])
def test_line_pointers(cluster: Cluster, frozen: bool) -> None:
    """On an all-visible page the backend looks at no line pointer; there the reader of the pages has to notice."""
    files = []
    with cluster.connect() as session:
        session.execute("CREATE SCHEMA test")
        session.execute("SELECT dana_create_udf('r', %s)", (json.dumps({"column": "id"}),))
        for k in range(len(DAMAGES)):
            session.execute(f"CREATE TABLE test.t{k} AS SELECT g AS id FROM generate_series(1, {ROWS}) g")
            session.execute(f"VACUUM (FREEZE) test.t{k}" if frozen else f"DELETE FROM test.t{k} WHERE id = 1")
            files += session.execute(f"SELECT pg_relation_filepath('test.t{k}')").fetchall()

    def change(k: int, pages: bytearray) -> None:
        offset, written = list(DAMAGES.values())[k]
        pages[8192 + offset : 8192 + offset + len(written)] = written

    damage(cluster, [cluster.folder / "data" / name for (name,) in files], change)
    for k, what in enumerate(DAMAGES):
        call = f"SELECT * FROM dana_train('r', 'test.t{k}')"
        with cluster.connect() as session:
            if session.execute("SHOW data_checksums").fetchone() == ("on",):
                with pytest.raises(psycopg.errors.DataCorrupted, match="invalid page in block 1"):
                    session.execute(call)
                session.execute("SET ignore_checksum_failure = on")
            with pytest.raises(psycopg.errors.DataCorrupted) as raised:
                session.execute(call)
            message = str(raised.value.diag.message_primary)
            said = (
                "the sink failed with 9 at page 2"
                if frozen
                else f"page 1 of table test.t{k} is corrupt: line pointer 6"
            )
            assert message.startswith("invalid page in block 1" if what == "page header" else said), what
            session.execute(f"CREATE TABLE test.u{k} AS SELECT 1 AS id")
            assert session.execute(f"SELECT tuples FROM dana_train('r', 'test.u{k}')").fetchone() == (1,)


COLUMNS = 'id int, note text, c "char", y float8, tail text'
FILTER = "id > 0 AND octet_length(note || tail) > 0 AND c < 'z' AND y < 1000 AND {table}::text <> ''"
"""It reads every column, and the whole row as a value of its own."""

NATTS, INFOMASK, HOFF, NOTE = 18, 20, 22, 28
"""Offsets in a tuple (htup_details.h); the columns begin at 24."""

LENGTH = -1
"""Not in the tuple: its length, in the line pointer."""


def tables(cluster: Cluster, count: int, rows: str) -> list[Path]:
    """Make so many tables t0, t1 … of one page; every other one is all-visible. Returns their files."""
    with cluster.connect() as session:
        session.execute("CREATE SCHEMA test")
        session.execute("SELECT dana_create_udf('r', %s)", (json.dumps({"column": "id"}),))
        names = []
        for k in range(count):
            session.execute(f"CREATE TABLE test.t{k} ({COLUMNS})")
            session.execute(f"ALTER TABLE test.t{k} ALTER tail SET STORAGE EXTERNAL")
            session.execute(f"INSERT INTO test.t{k} {rows}")
            session.execute(f"VACUUM (FREEZE) test.t{k}" if k % 2 else f"DELETE FROM test.t{k} WHERE id = 1")
            names += session.execute(f"SELECT pg_relation_filepath('test.t{k}')").fetchall()
    return [cluster.folder / "data" / name for (name,) in names]


def damage(cluster: Cluster, files: list[Path], change: Callable[[int, bytearray], None]) -> None:
    cluster.stop_server()
    for k, file in enumerate(files):
        content = bytearray(file.read_bytes())
        change(k, content)
        file.write_bytes(content)
    cluster.start_server()


def outcome(session: psycopg.Connection[object], table: str) -> str:
    """What a training under the filter says: an SQLSTATE with its message, or nothing."""
    try:
        session.execute("SELECT dana_train('r', %s, filter => %s)", (f"test.{table}", FILTER.format(table=table)))
    except psycopg.Error as error:
        return f"{error.sqlstate} {error.diag.message_primary}"
    return ""


TUPLES: dict[str, tuple[int, bytes, str]] = {
    "a header beyond the tuple": (HOFF, b"\xf8", "a tuple of 189 bytes has a header of 248, not of 24"),
    "a header without columns": (HOFF, b"\x00", "a tuple of 189 bytes has a header of 0, not of 24"),
    "a header that ends in itself": (NATTS, b"\x05\x00\x02\x09\x10", "a header of 16, not of 24"),
    "more columns than the table": (NATTS, b"\xff\x07", "the tuple has 2047 columns, the table 5"),
    "a long length": (NOTE, struct.pack("<I", 0x3FFFFFFF << 2), "column 2 does not lie within its tuple"),
    "a length of less than itself": (NOTE, struct.pack("<I", 3 << 2), "column 2 does not lie within its tuple"),
    "a compressed value without a header": (NOTE, struct.pack("<I", 7 << 2 | 2), "column 2 does not lie within its"),
    "a short length": (NOTE, b"\xff", "column 5 does not lie within its tuple"),
    "an address in memory": (NOTE, b"\x01\x01", "column 2 does not lie within its tuple"),
    "a value out of line that none should be": (NOTE, b"\x01\x12", "column 2 is stored out of line, and the tuple's"),
    "fewer bytes than the header's": (LENGTH, b"\x17", "a tuple of 23 bytes has a header of 24"),
    "fewer bytes than the first column's": (LENGTH, b"\x1a", "column 1 does not lie within its tuple"),
    "an aligned column behind the end": (LENGTH, b"\xad", "column 4 does not lie within its tuple"),
    "no column of variable length": (INFOMASK, b"\x00\x09", "column 2 has a length, and the tuple's header says"),
}
"""Offset in the tuple, bytes, and what is wrong then."""


def test_tuples_that_a_filter_would_read(cluster: Cluster) -> None:
    """PostgreSQL's functions trust a tuple: what they are given has been checked, in the pages and on all of them."""
    files = tables(cluster, 2 * len(TUPLES), "SELECT i, repeat('n', 140), 'c', i, 'tail' FROM generate_series(1, 9) i")
    damages = [one for one in TUPLES.values() for _ in range(2)]

    def change(k: int, page: bytearray) -> None:
        (item,) = struct.unpack_from("<I", page, LINE_POINTER)
        offset, written, _ = damages[k]
        at = (item & 0x7FFF) + offset
        if offset == LENGTH:
            at, written = LINE_POINTER, line_pointer(item & 0x7FFF, written[0])
        page[at : at + len(written)] = written

    damage(cluster, files, change)
    with cluster.connect() as session:
        session.execute("SET ignore_checksum_failure = on")
        for k, (_, _, message) in enumerate(damages):
            found = outcome(session, f"t{k}")
            assert found.startswith(f"XX001 page 0 of table test.t{k} is corrupt: line pointer 6: "), found
            assert message in found


def test_tuples_that_are_looked_at_for_the_length_of_arrays(cluster: Cluster) -> None:
    """A note that is too long for its tuple, or tuples of such lengths."""
    outside = "it points outside the page"
    lengths = {None: "column 2 does not lie within its tuple", 3: outside, 8000: outside}
    files = []
    with cluster.connect() as session:
        session.execute("CREATE SCHEMA test")
        session.execute("SELECT dana_create_udf('r', %s)", (json.dumps({"column": "id"}),))
        for k in range(len(lengths)):
            session.execute(f"CREATE TABLE test.t{k} (id int, note text, x real[])")
            session.execute(f"INSERT INTO test.t{k} SELECT i, repeat('n', 140), '{{}}' FROM generate_series(1, 9) i")
            # so that PostgreSQL looks at no tuple, to see whether it is visible
            session.execute(f"VACUUM (FREEZE) test.t{k}")
            files += session.execute(f"SELECT pg_relation_filepath('test.t{k}')").fetchall()

    def change(k: int, page: bytearray) -> None:
        (item,) = struct.unpack_from("<I", page, LINE_POINTER)
        length = list(lengths)[k]
        if length is None:
            struct.pack_into("<I", page, (item & 0x7FFF) + NOTE, 0x3FFFFFFF << 2)
        else:
            page[LINE_POINTER : LINE_POINTER + 4] = line_pointer(item & 0x7FFF, length)

    damage(cluster, [cluster.folder / "data" / name for (name,) in files], change)
    with cluster.connect() as session:
        session.execute("SET ignore_checksum_failure = on")
        for k, message in enumerate(lengths.values()):
            with pytest.raises(
                psycopg.errors.DataCorrupted, match=rf"page 0 of table test\.t{k} is corrupt: line pointer 6: {message}"
            ):
                session.execute(f"SELECT dana_train('r', 'test.t{k}')")


def test_random_damage_under_a_filter(cluster: Cluster) -> None:
    """Whatever lies on a page, the statement ends and the session goes on."""
    rng = random.Random(f"filter {SEED}")
    count = scaled(300)
    files = tables(
        cluster,
        count,
        "SELECT i, CASE i % 3 WHEN 0 THEN 'short' WHEN 1 THEN repeat('n', 140) ELSE repeat('compressed', 400) END,"
        " 'c', i, CASE i % 4 WHEN 0 THEN repeat('out of line', 200) WHEN 1 THEN NULL ELSE 'tail' END"
        " FROM generate_series(1, 30) i",
    )

    def change(k: int, page: bytearray) -> None:
        for _ in range(rng.randint(1, 6)):
            (item,) = struct.unpack_from("<I", page, 24 + 4 * rng.randrange(30))
            start, length = item & 0x7FFF, item >> 17
            # a tuple's header, its values, or a line pointer, by one bit or many
            at, end = rng.choice([(start + 18, start + 24), (start + 24, start + max(length, 25)), (24, 24 + 4 * 30)])
            at = min(rng.randrange(at, end), len(page) - 8)
            if rng.random() < 0.5:
                page[at] ^= 1 << rng.randrange(8)
            else:
                written = rng.randbytes(rng.randint(1, 8))
                page[at : at + len(written)] = written

    damage(cluster, files, change)
    states: Counter[str] = Counter()
    with cluster.connect() as session:
        session.execute("SET ignore_checksum_failure = on; SET client_min_messages = error")
        for k in range(count):
            states[outcome(session, f"t{k}")[:5]] += 1
            assert not session.closed, f"table {k}"
        assert session.execute("SELECT 1").fetchone() == (1,)
    assert states["XX001"] > count / 2, states


def test_tuples_of_a_table_that_is_read_as_rows(cluster: Cluster) -> None:
    """Behind the rows that are looked at first: a length from which the executor would take the next column's place."""
    files = []
    with cluster.connect() as session:
        session.execute("CREATE SCHEMA test")
        session.execute("SELECT dana_create_udf('r', %s)", (json.dumps({"column": "id", "rows": True}),))
        for k in range(2):
            session.execute(
                f"CREATE TABLE test.t{k} AS SELECT i AS id, 10.0 ^ (i % 100) AS n, 1::real AS y"
                " FROM generate_series(1, 400) AS i"
            )
            session.execute(f"VACUUM (FREEZE) test.t{k}" if k else f"DELETE FROM test.t{k} WHERE id = 1")
            session.execute(f"SELECT dana_train('r', 'test.t{k}')")
            files += session.execute(f"SELECT pg_relation_filepath('test.t{k}')").fetchall()

    def change(_: int, pages: bytearray) -> None:
        (item,) = struct.unpack_from("<I", pages, 8192 + LINE_POINTER)
        struct.pack_into("<I", pages, 8192 + (item & 0x7FFF) + NOTE, 0x3FFFFFFF << 2)

    damage(cluster, [cluster.folder / "data" / name for (name,) in files], change)
    with cluster.connect() as session:
        session.execute("SET ignore_checksum_failure = on")
        for k in range(2):
            with pytest.raises(psycopg.errors.DataCorrupted) as raised:
                session.execute(f"SELECT dana_train('r', 'test.t{k}')")
            message = f"page 1 of table test.t{k} is corrupt: line pointer 6: column 2 does not lie within its tuple"
            assert raised.value.diag.message_primary == message


NOTES = (
    b"\x09abc",
    struct.pack("<I10s", 14 << 2, b"long"),
    struct.pack("<I10s", 14 << 2 | 2, b"compressed"),
    b"\x01\x12" + bytes(16),
)
"""Values of a text, as they are stored: short, long, compressed, out of line."""


def test_no_look_leaves_a_tuple(cluster: Cluster, tmp_path: Path) -> None:
    """Tuples cut at every byte, and with random bytes, under the address sanitizer."""
    headers = cluster.installation.program("pg_config"), "--includedir-server"
    include = subprocess.run(headers, check=True, capture_output=True, text=True).stdout.strip()
    # what the looks do not call needs no server to link with
    flags = ["-g", "-O1", "-fsanitize=address", "-no-pie", "-Wl,--unresolved-symbols=ignore-all"]
    sources = [f"-I{include}", f"-I{CHECKOUT / 'pg_extension' / 'src'}", str(HERE / "tuples_harness.c")]
    subprocess.run(["cc", *flags, "-o", str(tmp_path / "looks"), *sources], check=True)
    tuples = []
    for note in NOTES:
        values = (struct.pack("<i", 1) + note + b"c").ljust(32 if len(note) == 18 else 24, b"\0")
        whole = struct.pack("<18xHHBx", 5, 6, 24) + values + struct.pack("<d", 1.0) + b"tail\0"
        tuples += [whole[:length] for length in range(23, len(whole) + 1)]
    rng = random.Random(f"tuples {SEED}")
    for _ in range(20_000):
        changed = bytearray(rng.choice(tuples))
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(18, len(changed))] = rng.choice([0, 1, 2, 3, 18, 255, rng.randrange(256)])
        tuples.append(bytes(changed))
    given = b"".join(struct.pack("<I", len(one)) + one for one in tuples)
    done = subprocess.run([tmp_path / "looks"], input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[:3000]
    assert len(NOTES) < int(done.stdout) < len(tuples) / 2


ARRAYS: dict[str, tuple[str, int, int]] = {
    "more elements than it has": ("x", 37, 2000),
    "more dimensions than there are": ("x", 25, 7),
    "fewer dimensions than none": ("x", 25, -1),
    "a bitmap in its header": ("x", 29, 8),
    "a bitmap behind its end": ("x", 29, 10000),
    "more numerics than it has": ("n", 70, 2000),
    "a numeric that is longer": ("n", 78, 4000 << 2),
    "a numeric of no length": ("n", 78, 0),
}
"""Column, offset in the tuple, and what is written there."""


def test_arrays(cluster: Cluster) -> None:
    """What we read of an array ourselves lies within it."""
    with cluster.connect() as session:
        session.execute("CREATE SCHEMA test; CREATE TABLE test.one AS SELECT 1 AS id")
        rule = {"weights": [1.0] * 2000, "predictor": predictor(2000)}
        session.execute("SELECT dana_create_udf('r', %s)", (json.dumps(rule),))
        session.execute("SELECT dana_train('r', 'test.one', 'm')")
        files = []
        for k in range(len(ARRAYS)):
            session.execute(f"CREATE TABLE test.t{k} AS SELECT '{{1,2,3}}'::real[] AS x, '{{1,2,3}}'::numeric[] AS n")
            files += session.execute(f"SELECT pg_relation_filepath('test.t{k}')").fetchall()

    def change(k: int, page: bytearray) -> None:
        (item,) = struct.unpack_from("<I", page, 24)
        _, offset, written = list(ARRAYS.values())[k]
        struct.pack_into("<i", page, (item & 0x7FFF) + offset, written)

    damage(cluster, [cluster.folder / "data" / name for (name,) in files], change)
    with cluster.connect() as session:
        session.execute("SET ignore_checksum_failure = on")
        for k, (column, _, _) in enumerate(ARRAYS.values()):
            with pytest.raises(psycopg.errors.DataCorrupted, match="an array is malformed"):
                session.execute(f"SELECT dana_predict('m', {column}) FROM test.t{k}")
