"""The data directory: how it is made and what is set in it.

In: an installation and a folder. Out: an initialised data directory. It starts no server.
Settings that an owner may change are written once into ``postgresql.conf``; what depends on the place
(sockets) is given on the command line at each start, so that a moved folder still starts.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from dana.errors import SetupError
from dana.server.account import Account
from dana.server.installation import Installation

SUPERUSER = "postgres"
DATABASE = "postgres"
PORT = 5432
"""Only names the socket's file: there is no TCP."""

SETTINGS = {
    "listen_addresses": "",  # unix socket only
    "shared_buffers": "1GB",  # scans keep tables of up to a quarter of it warm; touched only as it is used
    "max_connections": "40",
    "wal_level": "minimal",  # COPY into a new table writes no WAL
    "max_wal_senders": "0",  # wal_level minimal requires it
    "synchronous_commit": "off",  # a power cut may lose the last half second, never consistency
    "checkpoint_timeout": "15min",
    "max_wal_size": "2GB",
    "jit": "off",  # the build has no LLVM
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] ",
}

SETTINGS_FROM_18 = {
    "io_method": "sync",  # worker processes are slower than reading in place on a small machine
}


def settings(major: int) -> dict[str, str]:
    """Settings that are written into ``postgresql.conf`` of major version ``major``."""
    return SETTINGS | (SETTINGS_FROM_18 if major >= 18 else {})


def initialise(installation: Installation, data: Path, account: Account) -> None:
    """Create the data directory ``data``, owned by ``account``, unless it exists.

    Local connections are trusted: the sockets lie in a folder that only the account can enter.

    Raises
    ------
    SetupError
        initdb failed; the message ends with its output.
    """
    if (data / "PG_VERSION").exists():
        return
    part = data.with_name(f"{data.name}.part")
    account.run('rm -rf -- "$1" && mkdir -m 700 -- "$1"', part)
    command = [str(installation.program("initdb")), "--pgdata", str(part), "--username", SUPERUSER]
    command += ["--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
    done = subprocess.run(
        command,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        **account.identity(),
    )
    if done.returncode != 0:
        raise SetupError(f"initdb failed in {part}:\n{(done.stderr or done.stdout).strip()}")
    # initdb itself takes settings from 16 on only; the folder appears whole or not at all
    lines = "".join(f"{name} = '{value}'\n" for name, value in settings(installation.major).items())
    account.run('cat >> "$1/postgresql.conf" && mv -T -- "$1" "$2"', part, data, given=lines)


def server_command(installation: Installation, data: Path, sockets: Path, worker_socket: Path) -> list[str]:
    """Command that runs the server in the foreground."""
    options = {"unix_socket_directories": str(sockets), "port": str(PORT), "dana.socket_path": str(worker_socket)}
    command = [str(installation.program("postgres")), "-D", str(data)]
    for name, value in options.items():
        command += ["-c", f"{name}={value}"]
    return command
