"""The two registries of types: C's is Python's, and both are PostgreSQL's catalog."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np

from dana.storage.types import SCALARS, TYPES, NumberType, StoredType
from hwgen.spec.columns import ColumnType
from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "pg_extension" / "src"


def row(one: NumberType) -> str:
    element = one.column.name if isinstance(one, StoredType) else "-"
    return f"{one.oid} {one.length} {one.align} {element}"


def test_the_extension_has_the_same_types(cluster: Cluster, tmp_path: Path) -> None:
    headers = cluster.installation.program("pg_config"), "--includedir-server"
    include = subprocess.run(headers, check=True, capture_output=True, text=True).stdout.strip()
    program = tmp_path / "types"
    command = ["cc", f"-I{include}", f"-I{SOURCES}", "-o", str(program), str(HERE / "types_harness.c")]
    subprocess.run(command, check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == [row(one) for one in TYPES]


def test_they_are_those_of_the_catalog(session: Session) -> None:
    known = session.execute(
        "SELECT oid::int8, typarray::int8, typname::text, format_type(oid, NULL), typlen, typalign::text"
        " FROM pg_type WHERE oid = ANY (%s::oid[]) ORDER BY array_position(%s::oid[], oid)",
        ([one.oid for one in TYPES],) * 2,
    ).fetchall()
    assert known == [(one.oid, one.array_oid, one.typname, one.name, one.length, one.align) for one in TYPES]


def test_what_a_strider_reads_is_as_long_as_it_says() -> None:
    assert sorted(one.column for one in SCALARS.values()) == list(ColumnType)
    for one in SCALARS.values():
        assert one.length == one.column.bytes == np.dtype(one.dtype).itemsize


def test_no_other_file_lists_them() -> None:
    """A type that is added is a row of each registry: no other source names one that is converted."""
    names = re.compile(r"\b(NUMERIC|DATE|TIME|TIMETZ|TIMESTAMP|TIMESTAMPTZ)OID\b")
    found = {path.name for path in SOURCES.glob("*/*.[ch]") if names.search(path.read_text())}
    # which are no numbers as labels; what an untyped literal is read as; which a key that rows are chosen by may have,
    # and a time that divides them; whose texts no setting changes; what a value of another server's pages must hold
    assert found == {"contents.c", "number_types.h", "label_values.c", "inputs.c", "places.c", "split.c", "texts.c"}
