"""Folders and files that no other account of the machine can put in the place of ours.

In: a path. Out: an open folder, or an open file. A path is followed from ``/`` by descriptors, one name at a time, and
each folder is checked where it is open, so that nothing can change between the check and the use. What is checked is
what the kernel leaves to programs: owners, modes and symbolic links. Access control lists show in a mode's group bits.
"""

import errno
import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_LINKS: Final = 40
"""Symbolic links that a path may go through, as in the kernel (path_resolution(7))."""

_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class ForeignFolder(PermissionError):
    """Another account can change what a path leads to, or what is there; the message says where, and what to do."""


def open_folder(path: Path, *, make: int | None = None) -> int:
    """Open a folder that only this account can fill, on a path that no other account can change.

    The folder belongs to this account, and its group and others may not write it; a group with no other member does
    not count. Each folder above belongs to this account, to root, or to the owner of this program, and may be written
    by others only where it is sticky, as ``/tmp`` is: others can take a name there first, which is an error, and
    replace nothing. The folder itself is no symbolic link; one above it is followed where other accounts could not
    have put it.

    Parameters
    ----------
    make
        Mode with which missing folders are made; None: they are an error.

    Returns
    -------
    int
        A descriptor, which the caller closes.

    Raises
    ------
    ForeignFolder
        One of these is not so.
    FileNotFoundError, NotADirectoryError
        There is no such folder.
    """
    return _walk(path, made_mode=make, strict=True)


def create_file(name: str, flags: int) -> int:
    """Open a file to write, through nothing that another account put there: an opener for `open`.

    In a folder that any account may write, another account's symbolic link is not followed, and an existing file must
    belong to this account; otherwise its owner could read or redirect what is written. The kernel's
    ``fs.protected_symlinks`` and ``fs.protected_regular`` (proc_sys_fs(5)) are the same rule, where they are on.

    Raises
    ------
    ForeignFolder
        This is not so.
    """
    path = Path(name)
    folder = _walk(path.parent, made_mode=None, strict=False)
    try:
        shared = os.fstat(folder).st_mode & stat.S_IWOTH
        careful = os.O_NOFOLLOW | os.O_NONBLOCK if shared else 0
        try:
            file = os.open(path.name, flags & ~os.O_TRUNC | careful, 0o666, dir_fd=folder)
        except OSError as error:
            if shared and error.errno in (errno.ELOOP, errno.ENXIO, errno.EACCES):
                raise _not_ours(path) from None
            raise type(error)(error.errno, error.strerror, name) from None
    finally:
        os.close(folder)
    found = os.fstat(file)
    if shared and not (stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()):
        os.close(file)
        raise _not_ours(path)
    if flags & os.O_TRUNC and stat.S_ISREG(found.st_mode):
        os.ftruncate(file, 0)
    return file


def make_folder(path: Path) -> None:
    """Make a folder, and those above, where they are missing, through no link that `create_file` would not follow."""
    os.close(_walk(path, made_mode=0o777, strict=False))


def write_file(path: Path, data: bytes) -> None:
    """Make or replace a file, as `create_file` opens it; an OSError names it, a full disk's too."""
    try:
        with open(path, "wb", opener=create_file) as file:
            file.write(data)
    except OSError as error:
        if error.errno is not None:  # the text of a `ForeignFolder` names it
            error.filename = error.filename or str(path)
        raise


def others_may_write(found: os.stat_result) -> bool:
    """Whether accounts other than its owner and root may write a file or folder."""
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_private(found.st_gid, found.st_uid)


def require_own(path: Path, found: os.stat_result) -> None:
    """Raise `ForeignFolder` for a folder or file that is not this account's alone."""
    if found.st_uid != os.geteuid():
        raise ForeignFolder(
            f"{path} must belong to the account that uses it, user {os.geteuid()}, but it is user {found.st_uid}'s: "
            "remove it, or use a folder of this account's own"
        )
    if others_may_write(found):
        raise ForeignFolder(
            f"{path} must be writable for its owner alone, but its mode is {stat.S_IMODE(found.st_mode):04o}: "
            "remove it if others may have put something there, else chmod go-w"
        )


def _walk(path: Path, *, made_mode: int | None, strict: bool) -> int:
    """Open a folder by its path; missing ones are made with a mode. Strict: as `open_folder` describes."""
    names = list(reversed(path.absolute().parts[1:]))
    place, at, links = Path("/"), os.open("/", _LOOK | os.O_DIRECTORY), 0
    try:
        while True:
            found = os.fstat(at)
            if strict:
                (_require_unchangeable if names else require_own)(place, found)
            if not names:
                return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
            name = names.pop()
            place = place.parent if name == ".." else place / name
            below = _below(at, name, place, made_mode)
            kind = os.fstat(below)
            if stat.S_ISLNK(kind.st_mode):
                try:
                    links += 1
                    target = _target(below, place, links, folder=found, strict=strict, last=not names)
                finally:
                    os.close(below)
                names += reversed(target.parts[target.is_absolute() :])
                place = Path("/") if target.is_absolute() else place.parent
                below = os.open("/" if target.is_absolute() else ".", _LOOK | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
            if not stat.S_ISDIR(os.fstat(at).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    finally:
        os.close(at)


def _below(at: int, name: str, place: Path, made_mode: int | None) -> int:
    try:
        try:
            return os.open(name, _LOOK, dir_fd=at)
        except FileNotFoundError:
            if made_mode is None:
                raise
            with suppress(FileExistsError):  # another process was first
                os.mkdir(name, made_mode, dir_fd=at)
            return os.open(name, _LOOK, dir_fd=at)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(place)) from None


def _target(link: int, place: Path, links: int, *, folder: os.stat_result, strict: bool, last: bool) -> Path:
    """Where a symbolic link in a folder leads, if it is one to follow."""
    target = Path(os.readlink("", dir_fd=link))
    if links > MAX_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place))
    if strict and last:
        raise ForeignFolder(f"{place} must be a folder, not a symbolic link (to {target}): give the path of the folder")
    foreign = os.fstat(link).st_uid != os.geteuid()
    if others_may_write(folder) if strict else folder.st_mode & stat.S_IWOTH and foreign:
        raise ForeignFolder(
            f"{place} must not be a symbolic link (to {target}), since other accounts may write the folder it lies in: "
            "remove it, or use a folder of this account's own"
        )
    return target


def _require_unchangeable(path: Path, found: os.stat_result) -> None:
    """Raise where another account can exchange what lies in a folder."""
    trusted = {0, os.geteuid(), os.stat(__file__).st_uid}
    if found.st_uid not in trusted:
        raise ForeignFolder(
            f"{path} must belong to root or to the account that uses it, user {os.geteuid()}, but it is user "
            f"{found.st_uid}'s, who can replace what lies in it: use a folder of this account's own"
        )
    if others_may_write(found) and not found.st_mode & stat.S_ISVTX:
        raise ForeignFolder(
            f"{path} must not be writable for others, who can replace what lies in it, but its mode is "
            f"{stat.S_IMODE(found.st_mode):04o}: use a folder of this account's own, or chmod go-w"
        )


def _is_private(group: int, owner: int) -> bool:
    """Whether a group has its owner alone, as that of many users has; root does not count. Debian's sshd has the rule.

    A group without members, or one that the system does not know, may be a program's.
    """
    members = {entry.pw_uid for entry in pwd.getpwall() if entry.pw_gid == group}
    try:
        members |= {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(group).gr_mem}
    except KeyError:
        return False
    return bool(members) and members <= {owner, 0}


def _not_ours(path: Path) -> ForeignFolder:
    return ForeignFolder(
        f"{path} must be a file of this account, user {os.geteuid()}, because any account may write its folder: "
        "remove it, or write to another folder"
    )
