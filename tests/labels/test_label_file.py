"""The label file is the JSON that ``json.dumps`` would write, however many labels there are."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from ucds.data.columns import Keys, RowIds
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.marks import marks_of
from ucds.labels.wire import canonical_json

COUNTS = [1, 3, 10_000, 10_001, 20_000]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("marked", [False, True])
def test_a_file_in_pieces_is_the_file_as_a_whole(tmp_path: Path, count: int, marked: bool) -> None:
    rng = np.random.default_rng(count)
    contents = marks_of(Keys(rng.integers(256, size=(count, 16), dtype=np.uint8))) if marked else None
    held = ClusterLabels(RowIds(count), rng.integers(7, size=count), 7, 'Klinik "Süd"', contents)
    held.save(tmp_path / "labels.json")
    fields = {"format": "ucds-labels/2", "provider": 'Klinik "Süd"', "n_clusters": 7}
    fields |= {"ids": [str(i) for i in range(count)], "labels": held.labels.tolist()}
    fields |= {} if contents is None else {"contents": list(contents)}
    fields["digest"] = hashlib.sha256(canonical_json(fields)).hexdigest()
    whole = json.dumps(fields, ensure_ascii=False, indent=0) + "\n"
    assert (tmp_path / "labels.json").read_text(encoding="utf-8") == whole
    again = ClusterLabels.load(tmp_path / "labels.json")
    assert isinstance(again.ids, RowIds)
    assert (again.ids, again.contents) == (held.ids, held.contents)
    assert again.fingerprint == held.fingerprint
