"""Do the stubs tell the truth, and do they help?"""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

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
    check("mypy.stubtest", "skulk")


def test_everything_public_is_documented() -> None:
    for name in skulk.__all__:
        thing = getattr(skulk, name)
        assert name == "__version__" or inspect.getdoc(thing), name
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not member.startswith("_") and callable(value):
                assert inspect.getdoc(value), f"{name}.{member}"


@pytest.mark.parametrize("method", [skulk.Model.generate, skulk.Session.generate, skulk.Model.load])
def test_help_shows_the_options(method: object) -> None:
    parameters = inspect.signature(method).parameters  # type: ignore[arg-type]
    assert len(parameters) >= 8
    assert all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters.values())
