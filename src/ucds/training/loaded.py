"""A trained model for use from Python: it predicts on whatever its owner has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ucds.backbones import Backbone
from ucds.choices import Accelerator, Role
from ucds.training.inference import cluster_probabilities, encode_samples
from ucds.training.inputs import CacheOptions, Predictable, open_for_prediction
from ucds.training.model_file import StoredModel, load_model, save_model
from ucds.training.progress import Quiet, Reporter
from ucds.training.runtime import Runtime


@dataclass(frozen=True)
class Model:
    """A trained model; :func:`ucds.load` opens one.

    Every method takes a folder of images, an ``.npy`` or ``.npz`` file of embeddings, a list of image files,
    a list of PIL images, an array of embeddings ``(n, d)`` or of pixels ``(n, h, w, 3)``, or a torch dataset
    of any of these; whatever the model was trained on, images or embeddings.

    Attributes:
        stored: network, proportions and description.
        accelerator: device to compute on.
        cache: place of decoded images and frozen features.
        reporter: receives progress messages.
    """

    stored: StoredModel
    accelerator: Accelerator = "auto"
    cache: CacheOptions = field(default_factory=CacheOptions)
    reporter: Reporter = field(default_factory=Quiet, repr=False)

    @property
    def n_clusters(self) -> int:
        """Number of clusters, K."""
        return self.stored.card.n_clusters

    @property
    def role(self) -> Role:
        """Side that trained the model."""
        return self.stored.card.role

    def predict(self, source: Predictable) -> npt.NDArray[np.int64]:
        """Find the most probable cluster of each sample, ``(n,)`` in ``[0, K)``."""
        return np.asarray(self.predict_proba(source).argmax(1), dtype=np.int64)

    def predict_proba(self, source: Predictable) -> npt.NDArray[np.float32]:
        """Compute the probability of each cluster for each sample, ``(n, K)``; rows sum to 1."""
        data = open_for_prediction(source, self.stored.card.backbone, "target", self.cache, self.reporter)
        cache = self.cache.directory if isinstance(source, str | Path) else None
        probabilities = cluster_probabilities(self.stored, data, self._runtime(), cache=cache)
        return np.asarray(probabilities.cpu().numpy(), dtype=np.float32)

    def confidence(self, source: Predictable) -> npt.NDArray[np.float32]:
        """Compute the probability of each sample's most probable cluster, ``(n,)``."""
        return np.asarray(self.predict_proba(source).max(1), dtype=np.float32)

    def transform(self, source: Predictable) -> npt.NDArray[np.float32]:
        """Compute the bottleneck features of each sample, ``(n, width)``."""
        data = open_for_prediction(source, self.stored.card.backbone, "target", self.cache, self.reporter)
        return np.asarray(encode_samples(self.stored, data, self._runtime()).cpu().numpy(), dtype=np.float32)

    def save(self, folder: str | Path) -> None:
        """Write the model into a run folder, which is made if it does not exist."""
        save_model(Path(folder), self.stored)

    def _runtime(self) -> Runtime:
        return Runtime(accelerator=self.accelerator, reporter=self.reporter)


def load(
    run: str | Path,
    *,
    role: Role | None = None,
    backbone: Backbone | None = None,
    accelerator: Accelerator = "auto",
    cache: CacheOptions | None = None,
    reporter: Reporter | None = None,
) -> Model:
    """Open the model of a finished run.

    Args:
        run: run folder.
        role: refuse a model of the other side.
        backbone: encoder, if the model was trained with a module of the caller's own.
        accelerator: device to compute on.
        cache: place of decoded images and frozen features; the user's cache folder if ``None``.
        reporter: receives progress messages; nothing is said if ``None``.

    Raises:
        InputError: there is no finished run in the folder, or the role is wrong.
        DamagedFileError: the model file cannot be read.
    """
    stored = load_model(Path(run), role=role, backbone=backbone)
    return Model(stored, accelerator, cache or CacheOptions(), reporter or Quiet())
