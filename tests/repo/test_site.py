"""The documentation site: every guide is in its navigation, and it builds without a wrong link, anchor or docstring."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

from dana.server.places import CHECKOUT


def named(entries: list[object]) -> set[str]:
    return {
        page
        for entry in entries
        for value in (entry.values() if isinstance(entry, dict) else [entry])
        for page in (named(value) if isinstance(value, list) else {str(value)})
    }


def test_the_navigation_has_every_guide_and_notebook() -> None:
    project = tomllib.loads((CHECKOUT / "docs" / "site.toml").read_text())["project"]
    guides = {f"docs/{file.name}" for file in (CHECKOUT / "docs").glob("*.md")}
    notebooks = {f"examples/{file.stem}.md" for file in (CHECKOUT / "examples").glob("*.ipynb")}
    missing = (guides | notebooks) - named(project["nav"])
    assert missing == set()


def site_builder() -> ModuleType:
    """The module that builds the site, which is in no package."""
    spec = importlib.util.spec_from_file_location("site_builder", CHECKOUT / "docs" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)
    return site


def test_the_site_builds(tmp_path: Path) -> None:
    site_builder().build(tmp_path / "site", execute=False)
    html = tmp_path / "site" / "html"
    front = (html / "index.html").read_text()
    assert "One SQL statement" in front or "one SQL statement" in front
    assert "dana_train" in (html / "search.json").read_text()
    # nothing is loaded from elsewhere
    for page in html.rglob("*.html"):
        assert 'src="http' not in page.read_text(), page
        assert 'rel="stylesheet" href="http' not in page.read_text(), page
