"""A benchmark from its file to records and page, as a researcher runs it."""

from pathlib import Path

import pytest
from grid_kit import write_small
from typer.testing import CliRunner

from ucds.cli.options import app
from ucds.experiments.preflight import Machine
from ucds.experiments.records import FILE, read_records

pytestmark = pytest.mark.torch


def test_methods_of_ones_own_join_a_benchmark_whose_page_is_written_by_it_and_again_from_records(
    own_module: str, machine: Machine, tmp_path: Path
) -> None:
    """A function and a Method join by their names, with no edit of our code."""
    names = [f"{own_module}:alternate", f"{own_module}:titled"]
    config, results = write_small(tmp_path, methods=["kmeans", "po", *names]), tmp_path / "results"
    given = ["--data", str(machine.data), "--weights", "ucds/oriented_edges=none", "--accelerator", "cpu"]
    page, records = results / "small.md", results / "small" / FILE
    for command in (["benchmark", str(config), *given], ["table", str(config)]):
        page.unlink(missing_ok=True)
        done = CliRunner().invoke(app, [*command, "--results", str(results)], catch_exceptions=False)
        assert done.exit_code == 0
        assert page.read_text() in done.stdout
        assert f"| {names[0]} | 50.0 +- 0.0 (2) |" in done.stdout
        assert "| Alternating | 50.0 +- 0.0 (2) |" in done.stdout
        assert "8 of 8 cells have a record." in done.stdout
        assert len(read_records(records)) == 8
    own = [r for r in read_records(records) if r["method"] not in ("kmeans", "po")]
    assert sorted({r["method"] for r in own}) == names
    # Classes x, y, z hold four samples each: one cluster of three meets two of a class, the others one.
    entries = ("settings", "settings_hash", "seconds", "samples", "accuracy")
    assert {tuple(r[name] for name in entries) for r in own} == {(None, "none", 0.5, 12, 0.5)}
