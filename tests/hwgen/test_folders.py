"""Paths that another account could change lead nowhere: neither to a folder, nor to a file that is written."""

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from hwgen import folders
from hwgen.folders import ForeignFolder, create_file, make_folder, open_folder, write_file

ROOT = os.geteuid() == 0
NOBODY = 65534


def opened(path: Path, make: int | None = None) -> os.stat_result:
    folder = open_folder(path, make=make)
    try:
        return os.fstat(folder)
    finally:
        os.close(folder)


def foreign(path: Path, said: str) -> None:
    with pytest.raises(ForeignFolder, match=said):
        opened(path)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that everybody may write, sticky as /tmp is."""
    folder = tmp_path / "everybody"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def as_another(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *made: Path) -> None:
    """Do something as another account; without root's rights, by this one, which is another one afterwards."""
    act()
    if ROOT:
        for path in made:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    else:
        own = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)


def test_the_folder_that_is_open_is_that_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b"
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "a")):
        opened(folder)
    before = os.umask(0)
    try:
        assert os.path.samestat(opened(folder, 0o755), folder.stat())
    finally:
        os.umask(before)
    assert [f"{path.stat().st_mode & 0o7777:o}" for path in (folder, folder.parent)] == ["755", "755"]
    monkeypatch.chdir(folder)
    assert os.path.samestat(opened(Path("..")), folder.parent.stat())
    (folder / "file").touch()
    with pytest.raises(NotADirectoryError):
        opened(folder / "file")


def test_links_above_a_folder_are_followed_where_others_cannot_put_them(tmp_path: Path) -> None:
    (tmp_path / "real" / "in").mkdir(parents=True)
    for number, target in enumerate((tmp_path / "real", "real", "./real/in/..", "real/../0")):
        link = tmp_path / str(number)
        link.symlink_to(target)
        assert os.path.samestat(opened(link / "in"), (tmp_path / "real" / "in").stat())
        foreign(link, f"/{number} must be a folder, not a symbolic link .*: give the path of the folder")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        opened(tmp_path / "loop" / "in")


def test_links_in_a_shared_folder_are_not_followed(tmp_path: Path, shared: Path) -> None:
    (tmp_path / "mine" / "in").mkdir(parents=True)
    (shared / "link").symlink_to(tmp_path / "mine")
    said = "/everybody/link must not be a symbolic link .* since other accounts may write the folder it lies in"
    foreign(shared / "link" / "in", said)
    with pytest.raises(ForeignFolder, match=said):
        opened(shared / "link" / "new", 0o700)
    assert os.listdir(tmp_path / "mine") == ["in"]


def test_a_folder_above_that_others_may_write(tmp_path: Path, shared: Path) -> None:
    """Sticky, nobody replaces what is there; else anybody can."""
    assert opened(shared / "own", 0o700).st_mode & 0o777 == 0o700
    shared.chmod(0o777)
    foreign(shared / "own", "/everybody must not be writable for others, .* its mode is 0777: .* chmod go-w")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_folder_that_others_may_write(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    foreign(tmp_path, f"must be writable for its owner alone, but its mode is {mode:04o}")


def test_a_folder_of_another_account(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = shared / "own"
    as_another(monkeypatch, own.mkdir, own)
    foreign(own, "must belong to the account that uses it")
    monkeypatch.setattr(folders, "__file__", "/")  # root's
    foreign(own / "in", "must belong to root or to the account that uses it" if ROOT else "must belong to")


def test_a_group_of_its_owner_alone_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the groups are that many systems give each user, with a umask of 002."""
    (tmp_path / "in").mkdir()
    tmp_path.chmod(0o770)
    found = tmp_path.stat()
    owner = pwd.getpwuid(found.st_uid)

    def entry(uid: int, name: str) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", uid, found.st_gid, "", "/", "/bin/sh"))

    monkeypatch.setattr("grp.getgrgid", lambda group: type("Group", (), {"gr_mem": []}))
    monkeypatch.setattr(pwd, "getpwall", lambda: [entry(found.st_uid, owner.pw_name)])
    opened(tmp_path)
    opened(tmp_path / "in")
    for members in ([], [entry(found.st_uid, owner.pw_name), entry(found.st_uid + 1, "another")]):
        monkeypatch.setattr(pwd, "getpwall", lambda members=members: members)
        foreign(tmp_path, "must be writable for its owner alone, but its mode is 0770")
        foreign(tmp_path / "in", "must not be writable for others")


def test_what_is_written_goes_through_no_foreign_link(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mine"
    target.write_bytes(b"mine")
    (shared / "own").symlink_to(target)
    write_file(tmp_path / "mine", b"mine")
    as_another(monkeypatch, lambda: (shared / "link").symlink_to(target), shared / "link")
    with pytest.raises(ForeignFolder, match=r"/link must be a file of this account, .* any account may write"):
        write_file(shared / "link", b"lost")
    folder = tmp_path / "folder"
    folder.mkdir()
    (shared / "into").symlink_to(folder)
    if ROOT:
        os.chown(shared / "into", NOBODY, NOBODY, follow_symlinks=False)
    for call in (lambda: write_file(shared / "into" / "new", b"x"), lambda: make_folder(shared / "into" / "new")):
        with pytest.raises(ForeignFolder, match="/into must not be a symbolic link"):
            call()
    assert (target.read_bytes(), os.listdir(folder)) == (b"mine", [])


def test_what_is_written_goes_into_no_foreign_file(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner would read it."""
    theirs, pipe = shared / "theirs", shared / "pipe"

    def act() -> None:
        theirs.write_bytes(b"theirs")
        theirs.chmod(0o666)
        os.mkfifo(pipe)

    as_another(monkeypatch, act, theirs, pipe)
    for path in (theirs, pipe):
        with pytest.raises(ForeignFolder, match="must be a file of this account"):
            write_file(path, b"secret")
    assert theirs.read_bytes() == b"theirs"


def test_what_is_written_goes_where_it_is_sent(tmp_path: Path, shared: Path) -> None:
    for path in (tmp_path / "a", shared / "a"):
        write_file(path, b"longer")
        write_file(path, b"short")
        assert path.read_bytes() == b"short"
        with open(path, "a", opener=create_file) as file:
            file.write(" more")
        assert path.read_bytes() == b"short more"
    (tmp_path / "link").symlink_to("a")
    write_file(tmp_path / "link", b"through it")
    assert (tmp_path / "a").read_bytes() == b"through it"
    write_file(Path("/dev/null"), b"nothing")
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "none")):
        write_file(tmp_path / "none" / "a", b"")
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        write_file(tmp_path, b"")
