"""Tests of the sheets of thumbnails: they stay below the size that a page can bear."""

import numpy as np
import pytest

from ucds.page import thumbnails


def test_thumbnails_are_compressed_until_all_sheets_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(256, size=(300, 32, 32, 3), dtype=np.uint8)
    best = sum(map(len, thumbnails.lay_out(noise)))
    for share in (0.9, 0.5):
        monkeypatch.setattr(thumbnails, "MOST_BYTES", int(share * best))
        sheets = thumbnails.lay_out(noise)
        assert len(sheets) == 2  # none is left out
        assert sum(map(len, sheets)) <= share * best
