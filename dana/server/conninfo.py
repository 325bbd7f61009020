"""Connection strings as people write them; an error never has parts of one, which may be those of a password."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from dana.errors import UsageError

SECRETS = {one.keyword.decode() for one in Conninfo.get_defaults() if one.dispchar}
"""Parameters that libpq marks as hidden: passwords, keys, debugging options."""


def parts_of(dsn: str) -> dict[str, str]:
    """The parameters of a connection string.

    Raises
    ------
    UsageError
        libpq cannot read it.
    """
    try:
        return {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    except psycopg.ProgrammingError:  # its message has parts of the text
        message = "the connection string has neither the form key=value nor that of a URI"
        raise UsageError(message, hint="Write 'host=… dbname=… user=…', or 'postgresql://…'.") from None
