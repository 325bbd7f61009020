"""The account that the server runs as: what it can reach is asked of the kernel, and nothing is opened up for it."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dana.errors import SetupError
from dana.server.account import ACCOUNT_VARIABLE, LONGEST_READ, Account, server_account
from dana.server.cluster import initialise, settings
from dana.server.embedded import EmbeddedServer
from dana.server.installation import Installation
from dana.server.places import CHECKOUT, HOME_VARIABLE, default_root, socket_folder
from hwgen.folders import ForeignFolder

AS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not AS_ROOT, reason="another account's folder can be made by root alone")


@pytest.fixture
def other() -> Account:
    """An account that is told apart from this process's, whichever that is."""
    found = server_account()
    return Account(name=found.name, uid=found.uid, gid=found.gid, switched=True)


@pytest.fixture
def theirs(server_root: Path, other: Account) -> Iterator[Path]:
    """A folder of that account."""
    with tempfile.TemporaryDirectory(dir=server_root) as made:
        folder = Path(made) / "theirs"
        Path(made).chmod(0o755)
        other.make_private(folder)
        yield folder


def put(folder: Path, account: Account, script: str) -> None:
    """Do something in ``folder`` as the account."""
    subprocess.run(["/bin/sh", "-ec", script], cwd=folder, check=True, **(account.identity() if AS_ROOT else {}))


def test_an_ordinary_user_is_its_own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    account = server_account()
    assert (account.uid, account.switched, account.identity()) == (1234, False, {})


def test_root_gets_an_unprivileged_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv(ACCOUNT_VARIABLE, raising=False)
    account = server_account()
    assert account.name == "nobody"
    assert account.switched
    assert account.uid != 0
    assert account.identity() == {"user": account.uid, "group": account.gid, "extra_groups": []}


@pytest.mark.parametrize(("name", "message"), [("root", "must be an unprivileged account"), ("no-such", "no account")])
def test_root_refuses_an_account_that_does_not_serve(monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv(ACCOUNT_VARIABLE, name)
    with pytest.raises(SetupError, match=message):
        server_account()


def test_reach_is_what_the_kernel_says(tmp_path: Path) -> None:
    account = server_account()
    closed = tmp_path / "closed"
    closed.mkdir()
    inside = closed / "file"
    inside.write_text("")
    closed.chmod(0o700)
    # as root the account is another one, and closed to it; as a user it is the owner
    assert account.can("r", inside) == (not AS_ROOT)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_private_folder(server_root: Path) -> None:
    account = server_account()
    folder = server_root / "private"
    account.make_private(folder)
    found = folder.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (account.uid, 0o700)


def test_home_is_the_environment_s_or_the_checkout_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    account = Account(name="me", uid=os.geteuid(), gid=os.getegid(), switched=False)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    assert default_root(account) == tmp_path
    monkeypatch.delenv(HOME_VARIABLE)
    assert default_root(account) == CHECKOUT / ".dana"


def test_home_is_outside_a_checkout_that_the_account_cannot_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    monkeypatch.setattr(Account, "can", lambda self, access, path: False)
    root = default_root(Account(name="nobody", uid=65534, gid=65534, switched=True))
    assert root.parent == Path("/var/cache/dana")


def test_sockets_lie_in_the_preferred_folder_where_their_path_fits(theirs: Path) -> None:
    preferred = theirs / "run"
    assert socket_folder(preferred, server_account()) == preferred
    assert stat.S_IMODE(preferred.stat().st_mode) == 0o700


def test_sockets_move_where_the_path_is_too_long_for_the_kernel(server_root: Path) -> None:
    account = server_account()
    preferred = server_root / ("long" * 25) / "run"
    folder = socket_folder(preferred, account)
    try:
        assert folder.parent == Path("/tmp")
        found = folder.stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (account.uid, 0o700)
        assert socket_folder(preferred, account) == folder
        assert socket_folder(preferred / "other", account) != folder
    finally:
        folder.rmdir()
        socket_folder(preferred / "other", account).rmdir()


def test_a_socket_folder_that_others_can_enter_is_refused(server_root: Path) -> None:
    preferred = server_root / "open"
    preferred.mkdir(mode=0o755)
    with pytest.raises(SetupError, match=r"must be a folder of account .* with mode 0700"):
        socket_folder(preferred, server_account())


def test_a_socket_folder_that_is_a_link_is_refused(server_root: Path) -> None:
    target = server_root / "target"
    server_account().make_private(target)
    link = server_root / "link"
    link.symlink_to(target)
    with pytest.raises(SetupError, match="must be a folder of account"):
        socket_folder(link, server_account())


def test_a_child_runs_as_the_account() -> None:
    account = server_account()
    shown = subprocess.run(["id", "-u"], capture_output=True, text=True, check=True, **account.identity())
    assert shown.stdout.split() == [str(account.uid)]


def test_a_file_of_the_account_s_is_read_to_its_end(theirs: Path, other: Account) -> None:
    put(theirs, other, "mkdir log && head -c 100000 /dev/zero > log/text && printf end >> log/text")
    text = other.read(theirs, "log/text")
    assert len(text) == LONGEST_READ
    assert text.endswith("\0end")
    for missing in ("none", "none/text", "log/none"):
        with pytest.raises(FileNotFoundError):
            other.read(theirs, missing)


PLANTED = {
    "a link": "ln -s {secret} planted",
    "a link to a file of its own": "echo > own && ln -s own planted",
    "a pipe, which nobody writes": "mkfifo planted",
    "a device": "ln -s /dev/zero planted",
    "a folder": "mkdir planted",
    "a linked folder": "ln -s {folder} planted",
}


@pytest.mark.parametrize("script", PLANTED.values(), ids=PLANTED)
def test_nothing_else_is_read(script: str, tmp_path: Path, theirs: Path, other: Account) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    put(theirs, other, script.format(secret=secret, folder=tmp_path))
    for name in ("planted", "planted/secret"):
        with pytest.raises((SetupError, FileNotFoundError), match=r"planted\S* must be a file of account|'secret'"):
            other.read(theirs, name)


def test_a_socket_is_not_read(theirs: Path, other: Account) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(theirs / "planted"))
        with pytest.raises(SetupError, match="must be a file of account"):
            other.read(theirs, "planted")


@needs_root
def test_a_file_of_somebody_else_is_not_read(theirs: Path, other: Account) -> None:
    (theirs / "ours").write_text("secret")
    with pytest.raises(SetupError, match="must be a file of account"):
        other.read(theirs, "ours")


def test_a_folder_inside_is_made_once(theirs: Path) -> None:
    account = server_account()
    for _ in range(2):
        account.make_inside(theirs / "run")
    found = (theirs / "run").lstat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (account.uid, 0o700)


@needs_root
def test_no_folder_is_made_through_a_link(tmp_path: Path, theirs: Path, other: Account) -> None:
    put(theirs, other, f"ln -s {tmp_path} run; ln -s {tmp_path}/made made")
    for path in (theirs / "run" / "made", theirs / "made"):
        with pytest.raises(SetupError, match="cannot create directory"):
            other.make_inside(path)
    assert list(tmp_path.iterdir()) == []


INITDB = """#!/bin/sh
for last; do case $last in */data.part) data=$last;; esac; done
echo 18 > "$data/PG_VERSION"
ln -s "$(cat "$(dirname "$0")/target")" "$data/postgresql.conf"
"""
"""An initdb in whose folder the account has put a link while it ran."""


def test_settings_are_written_with_the_account_s_rights(theirs: Path) -> None:
    """At a link in the data directory root would append to whatever file the account chose."""
    account = server_account()
    installation = Installation(prefix=theirs.parent, major=18)
    target = theirs.parent / "target.conf"
    target.write_text("ours\n")
    (theirs.parent / "bin").mkdir()
    (theirs.parent / "bin" / "target").write_text(str(target))
    installation.program("initdb").write_text(INITDB)
    installation.program("initdb").chmod(0o755)
    if AS_ROOT:
        with pytest.raises(SetupError, match=r"postgresql\.conf.*Permission denied"):
            initialise(installation, theirs / "data", account)
        assert target.read_text() == "ours\n"
        os.chown(target, account.uid, account.gid)
    initialise(installation, theirs / "data", account)
    assert target.read_text() == "ours\n" + "".join(f"{name} = '{value}'\n" for name, value in settings(18).items())
    assert os.listdir(theirs) == ["data"]


def test_a_server_s_files_are_the_account_s_alone(tmp_path: Path, theirs: Path, other: Account) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"worker": 1}')
    server = EmbeddedServer(root=theirs.parent, major=18, account=other)
    other.make_private(theirs.parent / "18")
    for name in ("state.json", "alive.lock", "postgresql.log"):
        put(theirs.parent / "18", other, f"mkdir -p log; ln -s {secret} {name}; ln -s {secret} log/{name}")
    for looks in (lambda: server.worker_pid, lambda: server.is_running, lambda: server._tail(server.server_log)):
        with pytest.raises(SetupError, match="must be a file of account"):
            looks()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("link", "must be a folder, not a symbolic link"),
        ("writable", "must be writable for its owner alone"),
        ("writable/below", "must not be writable for others"),
        ("sticky/link", "must be a folder, not a symbolic link"),
        ("sticky/link/below", "since other accounts may write the folder it lies in"),
    ],
)
def test_no_server_lives_where_others_can_change_it(tmp_path: Path, place: str, said: str) -> None:
    """Its programs, as root copies them there, would be theirs."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    for name, mode in (("writable", 0o777), ("sticky", 0o1777)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    (tmp_path / "sticky" / "link").symlink_to("../mine")
    with pytest.raises(SetupError, match=f"cannot use the server's folder: .*{said}.* DANA_HOME"):
        EmbeddedServer.start(tmp_path / place)
    if (tmp_path / place).exists():  # as if it had been there before
        (tmp_path / place / "18").mkdir()
        with pytest.raises(ForeignFolder, match=said):
            EmbeddedServer.at(tmp_path / place).stop()
        assert os.listdir(tmp_path / place) == ["18"]
    else:
        assert not os.listdir(tmp_path / "mine") + os.listdir(tmp_path / "writable")
