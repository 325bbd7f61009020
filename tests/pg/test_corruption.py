"""Pages that are not what they should be: refused with the page's number, by the backend or by the worker."""

from __future__ import annotations

import json
import struct

import psycopg
import pytest

from tests.pg.cluster import Cluster

ROWS = 226 * 3
"""Three pages."""

LINE_POINTER = 24 + 4 * 5
"""Offset of the sixth line pointer (bufpage.h)."""


def line_pointer(offset: int, length: int, flags: int = 1) -> bytes:
    return struct.pack("<I", offset | flags << 15 | length << 17)


DAMAGES: dict[str, tuple[int, bytes]] = {
    "pointer outside the page": (LINE_POINTER, line_pointer(8180, 32)),
    "pointer into the header": (LINE_POINTER, line_pointer(8, 32)),
    "misaligned pointer": (LINE_POINTER, line_pointer(4001, 32)),
    "tuple without a header": (LINE_POINTER, line_pointer(4000, 3)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("frozen", [False, True], ids=["backend", "worker"])
def test_line_pointers(cluster: Cluster, damage: str, frozen: bool) -> None:
    """On an all-visible page the backend looks at no line pointer; there the reader of the pages has to notice."""
    with cluster.connect() as session:
        session.execute("CREATE SCHEMA test")
        session.execute("CREATE TABLE test.t AS SELECT g AS id FROM generate_series(1, %s) g", (ROWS,))
        session.execute("VACUUM (FREEZE) test.t" if frozen else "DELETE FROM test.t WHERE id = 1")
        session.execute("SELECT dana_create_udf('r', %s)", (json.dumps({"column": "id"}),))
        row = session.execute("SELECT pg_relation_filepath('test.t')").fetchone()
        assert row is not None
    cluster.stop_server()
    offset, written = DAMAGES[damage]
    with open(cluster.folder / "data" / row[0], "r+b") as file:
        file.seek(8192 + offset)
        file.write(written)
    cluster.start_server()
    with cluster.connect() as session:
        if session.execute("SHOW data_checksums").fetchone() == ("on",):
            with pytest.raises(psycopg.errors.DataCorrupted, match="invalid page in block 1"):
                session.execute("SELECT * FROM dana_train('r', 'test.t')")
            session.execute("SET ignore_checksum_failure = on")
        with pytest.raises(psycopg.errors.DataCorrupted) as raised:
            session.execute("SELECT * FROM dana_train('r', 'test.t')")
        message = str(raised.value.diag.message_primary)
        assert message.startswith(
            "the sink failed with 9 at page 2" if frozen else "page 1 of table test.t is corrupt: line pointer 6"
        )
        session.execute("CREATE TABLE test.u AS SELECT 1 AS id")
        assert session.execute("SELECT tuples FROM dana_train('r', 'test.u')").fetchone() == (1,)
