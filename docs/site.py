"""Builds the documentation site: ``python docs/site.py``, into build/site.

In: the documents where they lie, docstrings, and the notebooks of examples/. Out: build/site/html. Pages keep their
paths, so links that are right in the checkout are right on the site; files that they name are copied, too.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]

LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")

API = {
    "connection": ("Connection", ["dana.client.connection"]),
    "results": ("Results", ["dana.client.outcomes", "dana.client.models", "dana.session.results"]),
    "estimators": ("Estimators", ["dana.estimator"]),
    "language": ("The names of the rule language", ["dana.language.names", "dana.optimizers", "dana.functions"]),
}
"""Pages of the Python reference: title, and the modules whose docstrings they show."""


def pages() -> list[Path]:
    """Return the documents, and the README of each folder, relative to the checkout."""
    folders = ("docs", "examples", "dana", "dsl", "hwgen", "pg_extension", "benchmarks", "tests")
    found = [*CHECKOUT.glob("*.md"), *(file for folder in folders for file in (CHECKOUT / folder).rglob("*.md"))]
    return sorted(file.relative_to(CHECKOUT) for file in found)


def stage(page: Path, folder: Path) -> None:
    """Copy a page, and the files other than documents that it links to."""

    def target(link: re.Match[str]) -> str:
        shown, path, anchor = link.groups()
        named = (CHECKOUT / page).parent / path
        if "://" in path or not named.exists():
            return link[0]
        if named.is_dir():
            return f"[{shown}]({path}/README.md{anchor})" if (named / "README.md").exists() else shown
        if named.suffix == ".ipynb":
            return f"[{shown}]({path.removesuffix('.ipynb')}.md{anchor})"
        if named.suffix != ".md":
            copy = folder / named.resolve().relative_to(CHECKOUT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(named, copy)
        return link[0]

    text = (CHECKOUT / page).read_text(encoding="utf-8")
    text = re.sub(r"\A<!--.*?-->\n", "", text)  # a page's title is its first line
    (folder / page).parent.mkdir(parents=True, exist_ok=True)
    (folder / page).write_text(LINK.sub(target, text), encoding="utf-8")


def build(folder: Path, *, execute: bool) -> None:
    """Build the site in a folder, which is emptied first.

    Parameters
    ----------
    execute
        Whether notebooks are run, on the embedded server; otherwise they are shown as they are stored.

    Raises
    ------
    subprocess.CalledProcessError
        A link, an anchor or a docstring is wrong, or a notebook fails.
    """
    sources = folder / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages():
        stage(page, sources)
    (sources / "api").mkdir()
    for name, (title, modules) in API.items():
        text = f"# {title}\n\n" + "\n".join(f"::: {module}\n" for module in modules)
        (sources / "api" / f"{name}.md").write_text(text, encoding="utf-8")
    shutil.copy(CHECKOUT / "docs" / "site.css", sources / "docs")
    python = [sys.executable, "-m"]
    convert = [*python, "nbconvert", "--to", "markdown", *(["--execute"] if execute else [])]
    notebooks = sorted((CHECKOUT / "examples").glob("*.ipynb"))
    subprocess.run([*convert, "--output-dir", sources / "examples", *notebooks], check=True)
    shutil.copy(CHECKOUT / "docs" / "site.toml", folder / "zensical.toml")
    (folder / "checkout").symlink_to(CHECKOUT)  # where docstrings are read
    subprocess.run([*python, "zensical", "build", "--strict", "--clean"], cwd=folder, check=True)


if __name__ == "__main__":
    build(CHECKOUT / "build" / "site", execute=True)
