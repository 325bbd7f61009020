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
from dana.printable import printable
from dana.server.account import Account

HOME_VARIABLE = "DANA_HOME"

SITE = Path(__file__).resolve().parents[2]
"""Folder that holds the packages `dana`, `dsl` and `hwgen`."""

CHECKOUT = SITE if (SITE / "pg_extension").is_dir() else SITE / "dana" / "checkout"
"""The checkout; in an installed package what setup.py keeps of it: documents, examples, the extension's sources."""

PAPER = CHECKOUT / "examples" / "paper"
"""The rules of the paper in their plainest form: a fixed rate, no intercept."""

STOCHASTIC = CHECKOUT / "examples" / "stochastic"
"""Rules of the library that step once a pass, in their stochastic form."""

SOCKET_PATH_LIMIT = 107
"""Bytes in ``sockaddr_un.sun_path`` less the terminating zero (unix(7))."""

LONGEST_SOCKET_NAME = ".s.PGSQL.5432"


def default_root(account: Account) -> Path:
    """Folder of the embedded server: ``$DANA_HOME``, else ``.dana`` in the checkout, else ``~/.local/share/dana``.

    Root's server runs as an unprivileged account. Without a checkout that this account can reach (one below a 0700
    home it cannot), the folder is below ``/var/cache/dana``, which only root can write.
    """
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen and not chosen.isprintable():
        raise SetupError(f"${HOME_VARIABLE} is {printable(chosen)}: name a folder without control characters")
    if chosen:
        return Path(os.path.abspath(Path(chosen).expanduser()))  # links are checked where it is opened
    installed = CHECKOUT != SITE
    if account.switched:
        reached = not installed and account.can("x", CHECKOUT)
        return CHECKOUT / ".dana" if reached else Path("/var/cache/dana") / short_name(SITE)
    if not installed:
        return CHECKOUT / ".dana"
    # XDG Base Directory Specification: a relative path must be ignored
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share") / "dana"


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
