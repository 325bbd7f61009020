"""The operating-system account that the server and its worker run as, and what that account can reach.

In: the account of this process. Out: the account for the children. PostgreSQL does not run as root, so root's children
run as an existing unprivileged account. That account can replace its files by links to any file; so root changes files
below a folder of the account only through a child with its identity (`Account.run`), and reads only files that belong
to it (`Account.open`). This module must not create accounts, and must not change the mode of a folder that it did not
make: opening a 0700 home is worse than not starting.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from dana.errors import SetupError

ACCOUNT_VARIABLE = "DANA_OS_USER"

LONGEST_READ = 64 * 1024
"""Bytes read from a file of the account, at most."""


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
        # extra_groups: root's supplementary groups would otherwise stay with the child
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switched else {}

    def can(self, access: str, path: Path) -> bool:
        """Whether the account has ``access`` ('r', 'w' or 'x') to ``path``; asks the kernel, so that ACLs count."""
        test = ["/usr/bin/test", f"-{access}", str(path)]
        return subprocess.run(test, cwd="/", check=False, **self.identity()).returncode == 0

    def make_private(self, folder: Path) -> None:
        """Create ``folder`` for this account alone, mode 0700; its parent exists and is not the account's to write."""
        folder.mkdir(mode=0o700, exist_ok=True)
        if self.switched:
            os.chown(folder, self.uid, self.gid, follow_symlinks=False)

    def make_inside(self, folder: Path) -> None:
        """Create ``folder``, mode 0700, in one that the account can write, where it does not exist."""
        # the second mkdir is there for its message, which the first one suppresses
        self.run('mkdir -m 700 -- "$1" 2>/dev/null || test -d "$1" || mkdir -m 700 -- "$1"', folder)

    def run(self, script: str, *arguments: Path | str, given: str = "") -> None:
        """Run a script of the shell as this account, with ``given`` as its input.

        Raises
        ------
        SetupError
            It failed; the message is what it said.
        """
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", *map(str, arguments)],
            input=given,
            capture_output=True,
            text=True,
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            check=False,
            **self.identity(),
        )
        if done.returncode != 0:
            raise SetupError(done.stderr.strip() or f"{script!r} as account {self.name} ended with {done.returncode}")

    def open(self, folder: Path, name: str) -> int:
        """Open a file below a folder of the account for reading; the caller closes the descriptor.

        For another account, root opens only regular files of that account and follows no links: another file could be
        secret, and reading a pipe or a device may never end.

        Parameters
        ----------
        folder
            A folder that the account cannot move or replace.
        name
            Path of the file from there.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        SetupError
            It does not belong to the account.
        """
        if not self.switched:
            return os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
        *parents, last = name.split("/")
        # O_NONBLOCK: opening a pipe would wait for its writer
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        at = os.open(folder, flags | os.O_DIRECTORY)
        try:
            for parent in parents:
                below = os.open(parent, flags | os.O_DIRECTORY, dir_fd=at)
                os.close(at)
                at = below
            file = os.open(last, flags, dir_fd=at)
        except FileNotFoundError:
            raise
        except OSError as error:  # ELOOP, ENOTDIR: a link; ENXIO: a socket
            raise self._foreign(folder / name) from error
        finally:
            os.close(at)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != self.uid:
            os.close(file)
            raise self._foreign(folder / name)
        return file

    def read(self, folder: Path, name: str) -> str:
        """The end of a file's text, at most `LONGEST_READ` bytes; the file is opened by `open`."""
        with os.fdopen(self.open(folder, name), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_READ))
            return file.read(LONGEST_READ).decode(errors="replace")

    def _foreign(self, path: Path) -> SetupError:
        return SetupError(f"{path} must be a file of account {self.name} itself, not a link or another's; remove it")


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
