"""The examples of docstrings run as they stand, and print what they say."""

import doctest
from typing import Any

import pytest

from ucds import SourceClustering, TargetClustering


@pytest.mark.parametrize("kind", [SourceClustering, TargetClustering])
def test_the_example_of_a_class_runs(kind: Any) -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    (example,) = finder.find(kind, globs={})
    assert len(example.examples) > 4
    assert runner.run(example).failed == 0
