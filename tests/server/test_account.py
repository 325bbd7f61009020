"""The account that the server runs as: what it can reach is asked of the kernel, and nothing is opened up for it."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from dana.errors import SetupError
from dana.server.account import ACCOUNT_VARIABLE, Account, server_account
from dana.server.places import CHECKOUT, HOME_VARIABLE, default_root, socket_folder

AS_ROOT = os.geteuid() == 0


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


def test_sockets_lie_in_the_preferred_folder_where_their_path_fits(server_root: Path) -> None:
    preferred = server_root / "run"
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
