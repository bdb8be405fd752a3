"""Clusters found for samples, and the files that hold them: tables, and what annotation programs import."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ucds.choices import PredictionFormat, require_choice
from ucds.data.folders import Scan
from ucds.data.tables import require_suffix, require_table, write_table
from ucds.errors import InputError
from ucds.files import require_writable, write_text_atomically

UNSORTED = -1
"""Number in place of a cluster, for a sample whose confidence is below the least one asked for."""


@dataclass(frozen=True)
class Predictions:
    """Clusters of samples.

    Attributes:
        ids: id of each sample.
        clusters: ``(n,)`` most probable cluster of each sample; :data:`UNSORTED` where its confidence is
            below the least one asked for.
        confidence: ``(n,)`` confidence in the most probable cluster, see ``docs/confidence.md``.
        names: name of each named cluster by its number.
        n_clusters: number of clusters, K.
        model: name of the run that found the clusters.
        files: image files of the samples; ``None`` for other samples.
    """

    ids: Sequence[str]
    clusters: NDArray[np.int64]
    confidence: NDArray[np.float32]
    names: Mapping[int, str] = field(default_factory=dict)
    n_clusters: int = 0
    model: str = "ucds"
    files: Scan | None = None

    @property
    def unsorted(self) -> int:
        """Number of samples that are left without a cluster."""
        return int((self.clusters == UNSORTED).sum())

    def name_of(self, cluster: int) -> str:
        """Return the name of a cluster; its number if it has no name."""
        return self.names.get(cluster) or self.number_of(cluster)

    def number_of(self, cluster: int) -> str:
        """Return the number of a cluster in words, with as many digits as the largest number has."""
        return f"cluster_{cluster:0{len(str(self.n_clusters - 1))}d}"

    def save(self, path: str | Path, form: PredictionFormat = "table") -> None:
        """Write the predictions.

        A table has the columns sample, cluster and confidence, and name if clusters have names; in CSV, a
        text that a spreadsheet would take for a formula gets an apostrophe in front. See
        :func:`fiftyone_labels` and :func:`label_studio_tasks` for the other forms.

        Args:
            path: file to write. A table ends in .csv, .parquet or .json, the other forms in .json.
            form: form of the file.

        Raises:
            InputError: the suffix does not fit, or the form needs image files.
            NoSpaceError: the disk is full, or the folder is not writable.
        """
        path = Path(path)
        require_form(path, form)
        if form == "table":
            write_table(path, self.columns())
            return
        content = fiftyone_labels(self) if form == "fiftyone" else label_studio_tasks(self)
        write_text_atomically(path, json.dumps(content, indent=1) + "\n")
        if form == "label-studio":
            write_text_atomically(path.with_suffix(".xml"), label_studio_interface(self))

    def columns(self) -> dict[str, Any]:
        """Return the columns of the table by name."""
        columns = {"sample": self.ids, "cluster": self.clusters, "confidence": self.confidence}
        named = {"name": [self.names.get(k, "") for k in self.clusters.tolist()]} if self.names else {}
        return columns | named


def require_form(path: Path, form: PredictionFormat) -> None:
    """Make sure, before any work, that predictions can be written under a name.

    Raises:
        InputError: there is no such form, the suffix does not fit it, or the file cannot be written.
    """
    require_choice("out_format", form, PredictionFormat)
    if form == "table":
        require_table(path)
    else:
        require_writable(path)
        require_suffix(path, (".json",))


def require_probability(min_confidence: float) -> None:
    """Make sure that a least confidence is a probability.

    Raises:
        InputError: it is not.
    """
    if not 0 <= min_confidence <= 1:
        raise InputError(f"--min-confidence is a probability from 0 to 1, not {min_confidence}")


def fiftyone_labels(found: Predictions) -> dict[str, Any]:
    """Make what FiftyOne imports as a ``FiftyOneImageClassificationDataset``: labels by absolute path.

    Samples that are left without a cluster have no label there.

    Raises:
        InputError: the samples are not image files.
    """
    rows = zip(_own_files(found), found.clusters.tolist(), found.confidence.tolist(), strict=True)
    labels = {
        str(path.absolute()): None if k == UNSORTED else {"label": k, "confidence": confidence}
        for path, k, confidence in rows
    }
    return {"classes": [found.name_of(k) for k in range(found.n_clusters)], "labels": labels}


def label_studio_tasks(found: Predictions) -> list[dict[str, Any]]:
    """Make the tasks with predictions that Label Studio imports.

    An image is named by its path from the folder above that of the images, which Label Studio has to serve
    (``LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT``). Samples that are left without a cluster have no prediction.

    Raises:
        InputError: the samples are not image files.
    """
    files = _own_files(found)
    assert found.files is not None
    above = found.files.root.absolute().parent
    rows = zip(files, found.ids, found.clusters.tolist(), found.confidence.tolist(), strict=True)
    return [
        {
            "data": {
                "image": f"/data/local-files/?d={quote(_below(path, above))}",
                "sample": name,
            },
            "predictions": [] if cluster == UNSORTED else [_prediction(found, number, cluster, confidence)],
        }
        for number, (path, name, cluster, confidence) in enumerate(rows)
    ]


def _prediction(found: Predictions, number: int, cluster: int, confidence: float) -> dict[str, Any]:
    result = {
        "id": f"cluster-{number}",
        "type": "choices",
        "from_name": "cluster",
        "to_name": "image",
        "value": {"choices": [found.name_of(cluster)]},
    }
    return {"model_version": found.model, "score": confidence, "result": [result]}


def _below(path: Path, folder: Path) -> bytes:
    absolute = path.absolute()
    return os.fsencode(absolute.relative_to(folder if absolute.is_relative_to(folder) else "/").as_posix())


def label_studio_interface(found: Predictions) -> str:
    """Write the labelling interface, in Label Studio's XML, that the tasks need: one choice a cluster."""
    names = dict.fromkeys(found.name_of(cluster) for cluster in range(found.n_clusters))
    choices = "\n".join(f'    <Choice value="{escape(name)}"/>' for name in names)
    return (
        '<View>\n  <Image name="image" value="$image"/>\n'
        f'  <Choices name="cluster" toName="image" choice="single">\n{choices}\n  </Choices>\n</View>\n'
    )


def _own_files(found: Predictions) -> Sequence[Path]:
    """Return the files of the samples.

    Raises:
        InputError: the samples have no files of their own.
    """
    files = [] if found.files is None else [found.files.file(i) for i in range(len(found.ids))]
    own = [path for path in files if path is not None]
    if len(own) < len(found.ids):
        raise InputError("--out-format fiftyone and label-studio need image files: write a table of others")
    return own
