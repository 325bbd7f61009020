"""The operating-system account that the server and its worker run as, and what that account can reach.

In: the account of this process. Out: the account for the children. PostgreSQL refuses to run as root, so root's
children run as an unprivileged account that exists already. This module must not create accounts, and must not
change the mode of a folder that it did not make: opening up a 0700 home is worse than refusing to start.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from dana.errors import SetupError

ACCOUNT_VARIABLE = "DANA_OS_USER"


class Identity(TypedDict, total=False):
    """Arguments of `subprocess.Popen` that change the account."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An operating-system account.

    Attributes
    ----------
    name
        Its login name.
    uid, gid
        Its numbers.
    switched
        Whether it is another one than this process's, so that files need a new owner and children a new identity.
    """

    name: str
    uid: int
    gid: int
    switched: bool

    def identity(self) -> Identity:
        """Arguments that make `subprocess` start a child under this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switched else {}

    def can(self, access: str, path: Path) -> bool:
        """Whether the account has ``access`` ('r', 'w' or 'x') to ``path``; asks the kernel, so that ACLs count."""
        test = ["/usr/bin/test", f"-{access}", str(path)]
        return subprocess.run(test, cwd="/", check=False, **self.identity()).returncode == 0

    def make_private(self, folder: Path) -> None:
        """Create ``folder`` (its parent exists) for this account alone, mode 0700."""
        folder.mkdir(mode=0o700, exist_ok=True)
        if self.switched:
            os.chown(folder, self.uid, self.gid, follow_symlinks=False)


def server_account() -> Account:
    """Account for the server and its worker: this process's own, or for root ``$DANA_OS_USER`` (``nobody``).

    Raises
    ------
    SetupError
        Root, and the account does not exist or is root itself.
    """
    uid = os.geteuid()
    if uid != 0:
        return Account(name=str(uid), uid=uid, gid=os.getegid(), switched=False)
    name = os.environ.get(ACCOUNT_VARIABLE, "nobody")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise SetupError(
            f"PostgreSQL does not run as root and there is no account '{name}' to run it as; "
            f"set {ACCOUNT_VARIABLE} to an unprivileged account, or run as an ordinary user"
        ) from None
    if entry.pw_uid == 0:
        raise SetupError(f"{ACCOUNT_VARIABLE} must be an unprivileged account, not '{name}', which is root")
    return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid, switched=True)
