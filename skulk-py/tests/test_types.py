"""Do the stubs tell the truth, and do they help?"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import skulk
from conftest import EXAMPLES

HERE = Path(__file__).parent
PROJECT = HERE.parent


def check(*arguments: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_package_the_tests_and_a_sample_type_check(tmp_path: Path) -> None:
    cache = f"--cache-dir={tmp_path}"
    check("mypy", "--strict", cache, "-p", "skulk")
    check("mypy", "--strict", cache, str(HERE), str(EXAMPLES))


def test_the_stubs_are_what_is_there() -> None:
    check("mypy.stubtest", "skulk", "--allowlist", str(HERE / "stubtest_allowlist.txt"))


def test_what_takes_long_to_import_waits_until_it_is_asked_for() -> None:
    program = """
import sys
before = set(sys.modules)
import skulk
print(*sorted(set(sys.modules) - before))
assert set(skulk.__all__) <= set(dir(skulk))
assert skulk.ModelCard is skulk.ModelCard and skulk.vindex.__name__ == "skulk.vindex"
try:
    skulk.nothing
except AttributeError as error:
    print(error)
from skulk import *
print(len([name for name in skulk.__all__ if name not in globals()]), VindexReader.__name__)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stderr == ""
    assert run.stdout == "__future__ skulk skulk._errors skulk._skulk\nmodule 'skulk' has no attribute 'nothing'\n0 VindexReader\n"


@pytest.mark.parametrize("module", [skulk, skulk.planning, skulk.vindex])
def test_everything_public_is_documented(module: ModuleType) -> None:
    for name in module.__all__:
        thing = getattr(module, name)
        # What dataclasses document themselves with is their signature.
        documented = thing.__doc__ and not thing.__doc__.startswith(f"{name}(")
        assert documented or isinstance(thing, (int, float, str)), name
        for member, value in inspect.getmembers(thing) if inspect.isclass(thing) else ():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                assert inspect.getdoc(value), f"{name}.{member}"


@pytest.mark.parametrize(
    ("method", "count"),
    [
        (skulk.Model.generate, 20),
        (skulk.Session.generate, 8),
        (skulk.Model.load, 15),
        (skulk.serve, 15),
        (skulk.plan, 15),
        (skulk.price, 9),
        (skulk.ModelCard.profile, 5),
        (skulk.EmbeddingModel.load, 2),
        (skulk.EmbeddingModel.embed, 4),
    ],
)
def test_help_shows_the_options(method: Callable[..., object], count: int) -> None:
    parameters = inspect.signature(method).parameters
    assert len(parameters) >= count
    assert all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters.values())
