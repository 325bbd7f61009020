"""Where the embedded server keeps its files.

In: the environment, the checkout, the account. Out: paths. It creates only the folder for sockets, as the kernel limits
the length of its path.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from dana.errors import SetupError
from dana.server.account import Account

HOME_VARIABLE = "DANA_HOME"

CHECKOUT = Path(__file__).resolve().parents[2]
"""Folder that holds the packages `dana`, `dsl`, `hwgen` and, in a checkout, ``pg_extension``."""

PAPER = CHECKOUT / "examples" / "paper"
"""The rules of the paper in their plainest form: a fixed rate, no intercept."""

STOCHASTIC = CHECKOUT / "examples" / "stochastic"
"""Rules of the library that are solved by conjugate gradients, in their stochastic form."""

SOCKET_PATH_LIMIT = 107
"""Bytes in ``sockaddr_un.sun_path`` less the terminating zero (unix(7))."""

LONGEST_SOCKET_NAME = ".s.PGSQL.5432"


def default_root(account: Account) -> Path:
    """Folder of the embedded server: ``$DANA_HOME``, else ``.dana`` in the checkout.

    Root's server runs as an unprivileged account. Where that account cannot reach the checkout (one below a 0700
    home), the folder is below ``/var/cache/dana``, which only root can write.
    """
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        return Path(os.path.abspath(Path(chosen).expanduser()))  # links are checked where it is opened
    if not account.switched or account.can("x", CHECKOUT):
        return CHECKOUT / ".dana"
    return Path("/var/cache/dana") / short_name(CHECKOUT)


def short_name(path: Path) -> str:
    """Eight hexadecimal digits that stand for ``path``."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:8]


def socket_folder(preferred: Path, account: Account) -> Path:
    """Folder for unix sockets, mode 0700, owned by ``account``.

    ``preferred`` where a socket's path in it fits `SOCKET_PATH_LIMIT`, else a folder in ``/tmp`` named after it.

    Raises
    ------
    SetupError
        The folder in ``/tmp`` belongs to another account, which may have created it first.
    """
    folder = preferred
    if len(os.fsencode(preferred / LONGEST_SOCKET_NAME)) > SOCKET_PATH_LIMIT:
        folder = Path("/tmp") / f"dana-{account.uid}-{short_name(preferred)}"
    # lexists: a dangling link of another account must be found by lstat below
    if not os.path.lexists(folder):
        account.make_inside(folder)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.uid or found.st_mode & 0o077:
        raise SetupError(
            f"{folder} must be a folder of account {account.name} (uid {account.uid}) with mode 0700, "
            f"not one of uid {found.st_uid} with mode {stat.S_IMODE(found.st_mode):04o}; remove it"
        )
    return folder
