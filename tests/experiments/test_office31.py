"""The real Office-31, where a copy of it is at hand: set UCDS_OFFICE31 to its folder."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

from ucds.data.folders import scan_domains
from ucds.data.ground_truth import read_ground_truth
from ucds.experiments.datasets import check_counts, imbalanced_subset


@pytest.mark.skipif("UCDS_OFFICE31" not in os.environ, reason="needs Office-31: set UCDS_OFFICE31")
def test_a_copy_is_whole_and_its_imbalanced_subset_is_the_papers() -> None:
    scan = scan_domains(os.environ["UCDS_OFFICE31"])
    truth = read_ground_truth(scan)
    assert truth is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_counts("office31", scan, truth.n_classes)
    kept = imbalanced_subset(truth, scan.domain)
    counts = np.bincount(truth.classes[kept], minlength=31)
    assert (counts[15:] == np.bincount(truth.classes)[15:]).all()
    assert (counts[:15] > 0).all()
    assert len(kept) < 0.75 * len(scan)
