"""What a run folder holds beside the model: where its samples lay, labels and their use, stability."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ucds.data.sources import is_feature_folder
from ucds.errors import InputError
from ucds.files import read_object
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.cluster_number import ClusterNumber
from ucds.training.cluster_choice import read_choice
from ucds.training.run_folder import LABELS_FILE, STABILITY_FILE, TRANSFER_FILE


@dataclass(frozen=True)
class RunRecord:
    """What a run folder holds beside the model; entries that the run did not write are empty.

    Attributes:
        described: description of the run: method, settings, seed, digest of the data.
        labels: labels that a provider gave.
        transfer: use of these labels, with the evidence.
        stability: agreement of the vote repeated in parts and of the client's own clusterings, and whether
            these are so low that the clusters are in doubt, or that the confidence is too high.
        choice: evidence for the number of clusters; ``None`` if the number was given.
    """

    described: dict[str, Any]
    labels: ClusterLabels | None
    transfer: dict[str, Any] | None
    stability: dict[str, Any] | None
    choice: ClusterNumber | None

    def split_places(self, named: Path | None) -> tuple[Path | None, Path | None]:
        """Tell whether a person names the place of moved samples, or of the images of a folder of features.

        Returns:
            Place of the samples, and folder of the images; ``None`` where they were before.
        """
        place = self.described.get("images")
        of_features = place is not None and is_feature_folder(Path(place))
        return (None, named) if of_features else (named, None)

    @property
    def images(self) -> Path:
        """Folder or file of the samples that the run was trained on.

        Raises:
            InputError: the run does not say, or they are no longer there.
        """
        place = self.described.get("images")
        if not place:
            raise InputError("the run does not say where its samples lie: name their folder after the run")
        if not Path(place).exists():
            raise InputError(f"the samples of the run were in {place}, which is gone: name their folder")
        return Path(place)


def read_record(run: Path) -> RunRecord:
    """Read what a run folder holds beside the model.

    Raises:
        DamagedFileError: a file of the run cannot be read.
    """
    labels = run / LABELS_FILE
    return RunRecord(
        read_object(run / "run.json") or {},
        ClusterLabels.load(labels) if labels.exists() else None,
        read_object(run / TRANSFER_FILE),
        read_object(run / STABILITY_FILE),
        read_choice(run),
    )
