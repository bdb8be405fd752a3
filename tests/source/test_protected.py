"""Tests of `ucds.source.protected`: groups, weights and claims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ucds import InputError
from ucds.data.vectors import VectorSamples
from ucds.source.protected import make_claim, number_units, read_groups, weights_of

SAMPLES = VectorSamples(np.array([[1.0, 0], [1, 0], [0, 1], [0, 2]]), ids=["a", "b", "c", "d"])


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_images_of_a_person_and_the_copies_of_an_image_share_a_weight_of_one(tmp_path: Path) -> None:
    groups = read_groups(write(tmp_path / "g.csv", "id,group\na,Ann\nb,Bob\nc,Bob\nd,Bob\nmore,Eve\n"))
    np.testing.assert_allclose(weights_of(number_units(SAMPLES, groups)), [1, 1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(weights_of(number_units(SAMPLES, None)), [0.5, 0.5, 1, 1])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,person\na,Ann\n", "line 2 of .* has no id or no group"),
        ("id,group\na,Ann\na,Bob\n", "two groups: 'Ann' and 'Bob'"),
    ],
)
def test_a_file_of_groups_that_is_wrong_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_groups(write(tmp_path / "g.csv", text))
    with pytest.raises(InputError, match="cannot be read"):
        read_groups(tmp_path / "none.csv")


def test_an_image_without_a_person_is_refused() -> None:
    with pytest.raises(InputError, match="no group for 3 of 4 images, such as 'b'"):
        number_units(SAMPLES, {"a": "Ann"})


def test_delta_is_at_most_one_over_what_is_protected() -> None:
    units = np.arange(50)
    assert make_claim(2.0, None, units, "image").delta == 1e-5
    assert make_claim(2.0, 0.02, units, "image").delta == 0.02
    with pytest.raises(InputError, match=r"larger than 1 / 50, .* protected persons"):
        make_claim(2.0, 0.03, units, "person")
