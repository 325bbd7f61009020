"""Golden text: what a stage prints, kept beside the test that prints it.

In: the text a test produced and the name of that test. Out: a comparison with the file of the same name, or, under
``--update-golden``, that file rewritten. It must not create a missing file on an ordinary run: a missing golden fails,
so that a test cannot pass without something to compare with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """Compares text with the golden file of one test.

    Parameters
    ----------
    folder
        Where the test module's golden files live: ``<test folder>/golden/<module without test_>``.
    name
        The test's name without ``test_``, with its parameters.
    update
        Rewrite the file instead of comparing.
    """

    folder: Path
    name: str
    update: bool

    def path(self, suffix: str = ".txt") -> Path:
        """File that the text is compared with; ``suffix`` tells several texts of one test apart."""
        return self.folder / f"{re.sub(r'[^A-Za-z0-9_.=+-]+', '-', self.name).strip('-')}{suffix}"

    def __call__(self, actual: str, suffix: str = ".txt") -> None:
        """Assert that ``actual`` equals the golden file.

        Raises
        ------
        AssertionError
            The file is missing, or its text differs.
        """
        path = self.path(suffix)
        actual = actual if actual.endswith("\n") else actual + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
            return
        assert path.is_file(), f"no golden file {path}; look at the text, then run pytest --update-golden:\n{actual}"
        expected = path.read_text(encoding="utf-8")
        assert actual == expected, f"differs from {path}; if the new text is right, run pytest --update-golden"
