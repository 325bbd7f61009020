"""The names that `dana` offers to editors are those of the language, and cost nothing to import."""

from __future__ import annotations

import inspect
import pkgutil
import re
import subprocess
import sys

import pytest

import dana
import dana.language.elementwise
import dana.language.names
from dsl.semantics.library import DECLARATIONS, FUNCTIONS, METHODS, NAMES


@pytest.mark.parametrize("name", [*DECLARATIONS, *FUNCTIONS])
def test_signatures_agree(name: str) -> None:
    signature = {**DECLARATIONS, **FUNCTIONS}[name]
    parameters = inspect.signature(getattr(dana, name)).parameters.values()
    fixed = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    assert tuple(p.name for p in fixed if p.default is p.empty) == signature.required
    assert tuple(p.name for p in fixed if p.default is not p.empty) == signature.optional
    assert [p.name for p in parameters if p.kind is p.VAR_POSITIONAL] == ([signature.rest] if signature.rest else [])


def test_methods_agree() -> None:
    source = inspect.getsource(dana.language.names.Algo)
    for name, signature in METHODS.items():
        more = [f"*{signature.rest}"] if signature.rest else []
        more += [f"**{signature.options}"] if signature.options else []
        header = source.split(f"def {name}(")[1].split(") ->")[0]
        assert re.findall(r"(?:^|,)\s*([\w*]+)", header) == ["self", *signature.parameters, *more]


def test_every_name_is_exported_and_documented() -> None:
    assert set(NAMES) <= set(dana.__all__)
    assert set(NAMES) <= {*dana.language.names.__all__, *dana.language.elementwise.__all__}
    for name in NAMES:
        assert getattr(dana, name).__doc__
    # an imported submodule would take the place of a name of the language
    assert not set(NAMES) & {module.name for module in pkgutil.iter_modules(dana.__path__)}


@pytest.mark.parametrize("name", [*DECLARATIONS, *FUNCTIONS])
def test_a_call_by_python_says_what_to_do(name: str) -> None:
    function = getattr(dana, name)
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    arguments = [1 for p in required if p.kind is not p.VAR_POSITIONAL]
    with pytest.raises(dana.NotInRule, match=rf"dana\.{name} describes a rule, which is read as text"):
        function(*arguments)


def test_importing_dana_loads_nothing_heavy() -> None:
    code = (
        "import sys, dana\n"
        "heavy = {'numpy', 'lark', 'amaranth', 'psycopg', 'dsl', 'hwgen'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_compiling_a_rule_loads_no_numpy() -> None:
    code = (
        "import sys, dsl\n"
        "dsl.compile_rule('import dana\\nw = dana.model([2])\\nx = dana.input([2])\\nr = dana.algo(w, x)\\n"
        "r.setModel(w - x)\\n').hdfg.bind({})\n"
        "assert 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
