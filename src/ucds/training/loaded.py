"""A trained model for use from Python, on folders, files, arrays and datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ucds.arguments import checked, require_fields
from ucds.choices import Method, Role, Tune
from ucds.config import MethodSettings, restore
from ucds.data.dataset import Dataset
from ucds.data.images import MemoryImages
from ucds.data.sources import Source
from ucds.encoders.encoder import Encoder
from ucds.encoders.spec import LENGTHS
from ucds.errors import InputError
from ucds.heads import Head, mean_direction
from ucds.math.arrays import FloatArray, counted
from ucds.showing import shows
from ucds.training.features import BATCH, frozen_features, takes_features
from ucds.training.inputs import open_for_prediction
from ucds.training.model_file import StoredModel, load_model, save_model
from ucds.training.options import Compute
from ucds.training.run_folder import MODEL_FILE

FEWEST_TO_CENTRE = 32
"""Least number of samples whose mean says more about their domain than the means of other domains do."""

_BLOCK = 64 * BATCH  # samples whose features are read at a time


@shows()
class Outputs(NamedTuple):
    """The answers of a model about samples.

    Attributes:
        features: ``(n, d_f)`` bottleneck features.
        probabilities: ``(n, K)`` probability of each cluster, rows sum to 1.
        confidence: ``(n,)`` confidence in the most probable cluster.
    """

    features: npt.NDArray[np.float32]
    probabilities: npt.NDArray[np.float32]
    confidence: npt.NDArray[np.float32]


@shows("role", "n_clusters", "encoder", "method", "tune", "seed")
@dataclass(frozen=True)
class Model:
    """A trained model; :func:`ucds.load` opens one.

    Results have an entry for every sample that was given, in the same order. For an image that cannot be
    used, the entry is -1 for a cluster, and NaN for numbers.

    A model of images takes folders, lists and tables of images, PIL images and arrays of pixels
    ``(n, h, w, 3)``; a model of embeddings takes arrays ``(n, d)``, and files and tables of them. Both take
    data frames, torch data sets and those of Hugging Face. :func:`ucds.data.sources.find_samples` lists all;
    other inputs raise :class:`ucds.InputError`.

    Attributes:
        stored: head, encoder, proportions and description.
        compute: device, precision, cache and reporter.
    """

    stored: StoredModel
    compute: Compute = field(default_factory=Compute)

    def __post_init__(self) -> None:
        """Refuse values of another kind."""
        require_fields(self)

    @property
    def n_clusters(self) -> int:
        """Number of clusters, K."""
        return self.stored.card.n_clusters

    @property
    def role(self) -> Role:
        """Side that trained the model."""
        return self.stored.card.role

    @property
    def encoder(self) -> Encoder:
        """Function from inputs to features, described by its ``spec`` and ``weights``."""
        return self.stored.encoder

    @property
    def method(self) -> Method:
        """Method that made the model."""
        return self.stored.card.making.method

    @property
    def settings(self) -> MethodSettings:
        """Settings that made the model; settings that only the other side uses have their defaults."""
        return restore(self.method, self.stored.card.making.settings)

    @property
    def tune(self) -> Tune:
        """Part that was trained: ``"full"`` for everything, ``"head"`` for the layers above the encoder."""
        return self.stored.card.tune

    @property
    def seed(self) -> int:
        """Seed of every random choice."""
        return self.stored.card.making.seed

    @property
    def versions(self) -> Mapping[str, str]:
        """Version of Python and of each package that computed something, by name."""
        return self.stored.card.making.versions

    def predict(self, source: Source) -> npt.NDArray[np.int64]:
        """Find the most probable cluster of each sample, ``(n,)`` in ``[0, K)``."""
        data = self.open(source)
        return data.samples.as_listed(self.decide(data)[0], -1)

    def predict_proba(self, source: Source) -> npt.NDArray[np.float32]:
        """Compute the probability of each cluster for each sample, ``(n, K)``; rows sum to 1."""
        data = self.open(source)
        return data.samples.as_listed(self.outputs(data).probabilities, np.nan)

    def confidence(self, source: Source) -> npt.NDArray[np.float32]:
        """Compute the confidence in each sample's most probable cluster, ``(n,)``."""
        data = self.open(source)
        return data.samples.as_listed(self.decide(data)[1], np.nan)

    def transform(self, source: Source) -> npt.NDArray[np.float32]:
        """Compute the bottleneck features of each sample, ``(n, d_f)``."""
        data = self.open(source)
        return data.samples.as_listed(self.outputs(data).features, np.nan)

    @checked
    def save(self, folder: str | Path) -> None:
        """Write the model into a run folder, which is made if it does not exist.

        Raises:
            InputError: the folder has a model already.
            NoSpaceError: the folder cannot be written.
        """
        if (Path(folder) / MODEL_FILE).exists():
            raise InputError(f"{folder} has a model already: choose another folder")
        save_model(Path(folder), self.stored)

    def open(self, source: Source, side: Role = "target") -> Dataset:
        """Open samples for the model; a folder for the side "source" holds one folder per domain."""
        return open_for_prediction(source, self.stored.encoder, side, self.compute)

    def outputs(self, data: Dataset, *, recentred: bool = False) -> Outputs:
        """Compute features, probabilities and confidence of opened samples, in one pass.

        Args:
            data: samples that :meth:`open` returned.
            recentred: whether the samples are all of one domain. The model may then subtract their own mean,
                if its card says ``recentres`` and there are at least :data:`FEWEST_TO_CENTRE`.

        Raises:
            InputError: a feature or a logit is NaN or infinite.
        """
        n, card = len(data.samples), self.stored.card
        features = np.empty((n, card.bottleneck_width), np.float32)
        probabilities = np.empty((n, card.n_clusters), np.float32)
        for rows, part, shares in self._blocks(data, recentred):
            features[rows], probabilities[rows] = part, shares
        return Outputs(features, probabilities, probabilities.max(1))

    def decide(
        self, data: Dataset, *, recentred: bool = False
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Find the most probable cluster of opened samples, ``(n,)``, and the confidence in it, ``(n,)``.

        Unlike :meth:`outputs`, this does not hold features and probabilities of all samples in memory;
        arguments and errors are the same.
        """
        n = len(data.samples)
        clusters, confidence = np.empty(n, np.int64), np.empty(n, np.float32)
        for rows, _, shares in self._blocks(data, recentred):
            clusters[rows], confidence[rows] = shares.argmax(1), shares.max(1)
        return clusters, confidence

    def _blocks(self, data: Dataset, recentred: bool) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        """Compute the features and probabilities of block after block of the samples."""
        encoder = self.stored.encoder.on(self.compute.accelerator, self.compute.precision)
        head = self.stored.head
        recentred = recentred and self.stored.card.recentres and len(data.samples) >= FEWEST_TO_CENTRE
        # The features of a frozen encoder are kept: those of its training data, and of all samples that any
        # model with the same encoder has seen, are there already. The same images in memory may never come
        # again, and no other model has a trained encoder.
        keep = self.stored.card.tune == "head" and not isinstance(data.samples, MemoryImages)
        watch = self.compute.reporter.show
        remembered, known = data.samples.kind == "bottleneck", takes_features(encoder, data)
        if remembered:
            known = True
        elif recentred or encoder.spec.name == LENGTHS or (keep and self.compute.cache is not None):
            data, known = frozen_features(encoder, data, self.compute, watch, keep=keep), True
        if recentred:
            head = recentre(head, data)
        size = _BLOCK if known else BATCH
        starts = range(0, len(data.samples), size)
        for start in starts if known else counted(watch, "predict", starts):
            rows = np.arange(start, min(start + size, len(data.samples)))
            below = data.view.test(data.samples.read(rows))
            features = below if remembered else head.features(below if known else encoder(below))
            probabilities = head.probabilities(features)
            if not (np.isfinite(features).all() and np.isfinite(probabilities).all()):
                raise InputError("the model gives NaN or infinity for some samples: leave out extreme values")
            yield slice(start, start + size), features, probabilities


def recentre(head: Head, features: Dataset) -> Head:
    """Return a model's head that centres samples of one domain on their own mean, given their features."""
    n = len(features.samples)
    blocks = (features.samples.read(np.arange(at, min(at + BATCH, n))) for at in range(0, n, BATCH))
    return head.recentred(mean_direction(blocks))


@checked
def load(
    run: str | Path,
    *,
    role: Role | None = None,
    encoder: Encoder | None = None,
    compute: Compute | None = None,
) -> Model:
    """Open the model of a finished run.

    Args:
        run: run folder.
        role: side of the model; a model of the other side is refused. ``None`` takes both sides.
        encoder: encoder, if the model was trained with the caller's own function or module.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: there is no finished run in the folder, the role is wrong, or an encoder is given to a
            run that holds its own.
        DamagedFileError: the model file was changed after it was written, does not fit its own description,
            or holds NaN or infinity.
    """
    stored = load_model(Path(run), role=role, encoder=encoder)
    return Model(stored, compute or Compute())
