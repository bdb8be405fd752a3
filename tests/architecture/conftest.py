"""Runs commands apart from the tests' own process, on embeddings small enough for seconds."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EVERY = ["--accelerator", "cpu"]
PCD = ["--method", "pcd", *EVERY, "--set", "bottleneck_width=8", "--set", "batch_size=16"]
QUICK = {
    "consensus": ["--method", "consensus", *EVERY, "--set", "bottleneck_width=8", "--set", "starts=1"],
    "pcd-source": [*PCD, "--set", "source_epochs=2"],
    "pcd": [*PCD, "--set", "clustering_epochs=2", "--set", "refinement_epochs=2"],
}


@dataclass(frozen=True)
class Outcome:
    """Result of a command.

    Attributes:
        status: exit status.
        told: text that it printed for the user.
        modules: modules of ucds that it loaded.
        home: file that ``import ucds`` found.
    """

    status: int
    told: str
    modules: list[str]
    home: str

    def loaded(self, *packages: str) -> list[str]:
        """Return the modules of these parts of ucds that the command loaded."""
        places = tuple(f"ucds.{package}." for package in packages)
        return [name for name in self.modules if f"{name}.".startswith(places)]


RunCommands = Callable[..., list[Outcome]]


@pytest.fixture(scope="session")
def run_commands() -> Iterator[RunCommands]:
    """Run command lines one after the other, in a folder, with the package at another place if given."""
    program = [sys.executable, str(Path(__file__).parent / "run_commands.py")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as running:
        asking, answering = running.stdin, running.stdout
        assert asking is not None
        assert answering is not None

        def run(commands: list[list[str]], folder: Path, package: Path | None = None) -> list[Outcome]:
            print(json.dumps([commands, str(folder), package and str(package)]), file=asking, flush=True)
            return [Outcome(**outcome) for outcome in json.loads(answering.readline())]

        yield run
        running.kill()  # it ends with its input, which other processes of the tests may hold open


@pytest.fixture(scope="session")
def quick() -> dict[str, list[str]]:
    """Options that make training short, by method."""
    return QUICK


@pytest.fixture(scope="session")
def write_embeddings(blobs: Any) -> Callable[[Path], None]:
    """Write two source domains and a target into a folder."""

    def write(folder: Path) -> None:
        arrays = blobs({"a": 48, "b": 48, "target": 60})
        np.save(folder / "target.npy", arrays.pop("target"))
        np.savez(folder / "source.npz", **arrays)

    return write
