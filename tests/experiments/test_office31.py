"""The real Office-31, where a copy of it is at hand: set UCDS_OFFICE31 to its folder."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from ucds.data.decode import decode_image
from ucds.data.folders import scan_domains, scan_folder
from ucds.data.ground_truth import read_ground_truth
from ucds.data.images import ImageSamples
from ucds.experiments.datasets import check_counts, imbalanced_subset


@pytest.fixture
def office31() -> Path:
    folder = os.environ.get("UCDS_OFFICE31")
    if not folder:
        pytest.skip("no Office-31 here: set UCDS_OFFICE31 to its folder to run this test")
    return Path(folder)


def test_counts_and_classes(office31):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scan = scan_domains(office31)
        assert len(check_counts("office31", scan, read_ground_truth(scan).n_classes)) == 4


def test_the_folder_of_one_domain_has_the_same_classes(office31):
    whole = read_ground_truth(scan_domains(office31))
    webcam = read_ground_truth(scan_folder(office31 / "webcam"))
    assert webcam.names == whole.names
    assert len(webcam.classes) == 795


def test_images_come_from_the_cache(office31, tmp_path):
    scan = scan_domains(office31, ["dslr"])
    samples = ImageSamples(scan, tmp_path, limit_bytes=300 * 3 * 256 * 256)
    assert len(samples) == 498
    chosen = np.array([0, 299, 300, 497, 17])
    files = [samples.files.read(int(i)) for i in chosen]
    expected = np.stack([decode_image(data, 256) for data in files])
    assert (samples.read(chosen).numpy() == expected).all()


def test_the_imbalanced_subset(office31):
    scan = scan_domains(office31)
    truth = read_ground_truth(scan)
    kept = imbalanced_subset(truth, scan.domain)
    counts = np.bincount(truth.classes[kept], minlength=31)
    assert (counts[15:] == np.bincount(truth.classes)[15:]).all()
    assert (counts[:15] > 0).all()
    assert len(kept) < 0.75 * len(scan)
