"""Tests of the researcher's commands: what they pass on, write and print."""

from pathlib import Path

import pytest
from grid_kit import write_small
from typer.testing import CliRunner

from ucds.cli.options import app
from ucds.experiments.preflight import Machine
from ucds.experiments.records import FILE, read_records

pytestmark = pytest.mark.torch


def test_a_benchmark_is_run_and_its_page_is_written_by_it_and_again_from_the_records_alone(
    machine: Machine, tmp_path: Path
) -> None:
    config, out = write_small(tmp_path, seeds=[0]), tmp_path / "results"
    given = ["--data", str(machine.data), "--weights", "ucds/oriented_edges=none", "--accelerator", "cpu"]
    told = []
    for command in (["benchmark", str(config), *given], ["table", str(config)]):
        (out / "small.md").unlink(missing_ok=True)
        done = CliRunner().invoke(app, [*command, "--results", str(out)], catch_exceptions=False)
        assert done.exit_code == 0
        assert len(read_records(out / "small" / FILE)) == 2
        assert (out / "small.md").read_text() in done.stdout
        told.append((out / "small.md").read_text())
    assert "# Small" in told[0]
    assert told[1] == told[0]
