"""Tests of the researcher's commands: what they pass on, write and print."""

from pathlib import Path

import pytest
from grid_kit import record, write_small
from typer.testing import CliRunner

from ucds.cli.options import app
from ucds.experiments.grid import read_benchmark
from ucds.experiments.preflight import Machine
from ucds.experiments.records import FILE, append_record, read_records

pytestmark = pytest.mark.torch


def test_a_benchmark_is_run_and_its_page_written(machine: Machine, tmp_path: Path) -> None:
    config, results = write_small(tmp_path, seeds=[0]), tmp_path / "results"
    arguments = ["benchmark", str(config), "--data", str(machine.data), "--results", str(results)]
    arguments += ["--weights", "ucds/oriented_edges=none"]
    done = CliRunner().invoke(app, [*arguments, "--accelerator", "cpu"], catch_exceptions=False)
    assert done.exit_code == 0
    assert len(read_records(results / "small" / FILE)) == 2
    assert "# Small" in done.stdout
    assert (results / "small.md").read_text() in done.stdout


def test_a_page_is_written_again_from_records_alone(tmp_path: Path) -> None:
    config = write_small(tmp_path, backbone='backbone = "net"', seeds=[0])
    settings = read_benchmark(config).settings["pcd"]
    results = tmp_path / "results"
    append_record(results / "small" / FILE, record("po", "a", 0, 0.125, settings=settings))
    done = CliRunner().invoke(app, ["table", str(config), "--results", str(results)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "| PO | 12.5 (1) | 14.1 |" in done.stdout
