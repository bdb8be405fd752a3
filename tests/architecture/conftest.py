"""Runs commands with a package that is loaded anew, so that a test sees what each one loads."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, chdir, contextmanager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_kit import run_command

Anew = Callable[..., AbstractContextManager[None]]


def modules() -> list[str]:
    return sorted(name for name in sys.modules if name.partition(".")[0] == "ucds")


class Outcome(NamedTuple):
    """Exit status of a command, what it said, and the modules of ucds that it loaded."""

    status: int
    told: str
    modules: list[str]

    def loaded(self, *rooms: str) -> list[str]:
        """Return the modules of these rooms that the command loaded."""
        places = tuple(f"ucds.{room}." for room in rooms)
        return [name for name in self.modules if f"{name}.".startswith(places)]


RunAnew = Callable[..., Outcome]


@contextmanager
def _anew(package: Path | None = None) -> Iterator[None]:
    before = {name: sys.modules.pop(name) for name in modules()}
    sys.path[:0] = [str(package)] if package else []
    try:
        yield
    finally:
        for name in modules():
            del sys.modules[name]
        sys.modules.update(before)
        del sys.path[: 1 if package else 0]


@pytest.fixture(scope="session")
def anew() -> Anew:
    """Load ucds anew, from another folder if given; at the end, the modules of the other tests come back."""
    return _anew


@pytest.fixture(scope="session")
def run_anew() -> RunAnew:
    """Run a command line in a folder, with ucds loaded anew."""

    def run(line: str, folder: Path, package: Path | None = None) -> Outcome:
        with _anew(package), chdir(folder), pytest.MonkeyPatch.context() as patch:
            patch.setenv("UCDS_CACHE", str(folder / "cache"))
            import_module("ucds.cli")
            patch.setattr("cli_kit.ucds", sys.modules["ucds"])
            done = run_command(*line.split())
            assert package is None or Path(str(sys.modules["ucds"].__file__)).is_relative_to(package)
            return Outcome(done.status, done.err, modules())

    return run
