"""Another account's link in a shared cache: neither cache follows it, and nothing is removed where it leads."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dana.trainer.trainer import design_cache
from hwgen.cache import CacheFolder
from hwgen.folders import ForeignFolder
from hwgen.rtl.verilate import object_cache

ROOT = os.geteuid() == 0
NAME = f"{'a' * 64}.so"


@pytest.mark.parametrize("of", [design_cache, object_cache])
@pytest.mark.parametrize("depth", ["dana", "dana/{}"])
def test_a_link_of_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: Callable[[], CacheFolder], depth: str
) -> None:
    shared, mine = tmp_path / "shared", tmp_path / "mine"
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    part = of().path.name
    (mine / part).mkdir(parents=True)
    precious = [mine / NAME, mine / "letter.txt", mine / part / NAME, mine / part / "letter.txt"]
    for path in precious:
        path.write_text("precious")
    shared.mkdir()
    shared.chmod(0o1777)
    identity = {"user": 65534, "group": 65534} if ROOT else {}  # another account, where there are rights to be one
    link = depth.format(part)
    script = 'mkdir -p "$(dirname "$1")"; ln -s "$2" "$1"'
    subprocess.run(["/bin/sh", "-ec", script, "sh", link, str(mine)], check=True, cwd=shared, **identity)
    cache = CacheFolder(path=of().path, limit=0)
    for call in (
        cache.sweep,
        lambda: cache.read(NAME),
        lambda: CacheFolder(path=cache.path, limit=1 << 20).write(NAME, b"x"),
        lambda: cache.made(NAME, lambda work, lock: pytest.fail("nothing is made there")),
    ):
        with pytest.raises(ForeignFolder, match=str(shared)):
            call()
    assert [path.read_text() for path in precious] == ["precious"] * 4
    assert len(list(mine.rglob("*"))) == 5
