"""A trained model for use from Python, on folders, files, arrays and datasets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ucds.choices import Role
from ucds.data.dataset import Dataset
from ucds.data.images import MemoryImages
from ucds.data.sources import Source
from ucds.encoders.spec import LENGTHS
from ucds.gradients.runtime import Runtime
from ucds.networks.model import ClusteringModel, ModelOutput
from ucds.networks.spec import Backbone
from ucds.training.features import frozen_features
from ucds.training.inputs import open_for_prediction
from ucds.training.model_file import StoredModel, load_model, save_model
from ucds.training.options import Compute
from ucds.training.prediction import compute_all, require_finite

FEWEST_TO_CENTRE = 32
"""Samples from which on the mean of a set says more about its domain than the means of other domains do."""

_BLOCK_BYTES = 2**21  # features in double precision that are summed at a time


class Outputs(NamedTuple):
    """What a model says about samples.

    Attributes:
        features: ``(n, d_f)`` bottleneck features.
        probabilities: ``(n, K)`` probability of each cluster, rows sum to 1.
        confidence: ``(n,)`` confidence in the most probable cluster.
    """

    features: npt.NDArray[np.float32]
    probabilities: npt.NDArray[np.float32]
    confidence: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Model:
    """A trained model; :func:`ucds.load` opens one.

    Answers about a source have an entry for every sample that it lists, in that order. Where an image cannot
    be used, that entry is -1 for a cluster, and NaN for numbers.

    A model of images takes folders, lists and tables of images, PIL images and arrays of pixels
    ``(n, h, w, 3)``; a model of embeddings takes arrays ``(n, d)``, and files and tables of them. Both take
    data frames, torch data sets and those of Hugging Face. :func:`ucds.data.sources.find_samples` lists all;
    other inputs raise :class:`ucds.InputError`.

    Attributes:
        stored: network, proportions and description.
        compute: device, precision, cache and reporter.
    """

    stored: StoredModel
    compute: Compute = field(default_factory=Compute)

    @property
    def n_clusters(self) -> int:
        """Number of clusters, K."""
        return self.stored.card.n_clusters

    @property
    def role(self) -> Role:
        """Side that trained the model."""
        return self.stored.card.role

    def predict(self, source: Source) -> npt.NDArray[np.int64]:
        """Find the most probable cluster of each sample, ``(n,)`` in ``[0, K)``."""
        data = self.open(source)
        return data.samples.as_listed(self.decide(data)[0], -1)

    def predict_proba(self, source: Source) -> npt.NDArray[np.float32]:
        """Compute the probability of each cluster for each sample, ``(n, K)``; rows sum to 1."""
        data = self.open(source)
        return data.samples.as_listed(self.outputs(data).probabilities, np.nan)

    def confidence(self, source: Source) -> npt.NDArray[np.float32]:
        """Compute how sure the model is about each sample's most probable cluster, ``(n,)``."""
        data = self.open(source)
        return data.samples.as_listed(self.decide(data)[1], np.nan)

    def transform(self, source: Source) -> npt.NDArray[np.float32]:
        """Compute the bottleneck features of each sample, ``(n, d_f)``."""
        data = self.open(source)
        return data.samples.as_listed(self.outputs(data).features, np.nan)

    def save(self, folder: str | Path) -> None:
        """Write the model into a run folder, which is made if it does not exist."""
        save_model(Path(folder), self.stored)

    def open(self, source: Source, side: Role = "target") -> Dataset:
        """Open samples for the model; a folder for the side "source" holds one folder a domain."""
        return open_for_prediction(source, self.stored.backbone, side, self.compute)

    def outputs(self, data: Dataset, *, recentred: bool = False) -> Outputs:
        """Compute features, probabilities and confidence of opened samples, in one pass.

        Args:
            data: samples that :meth:`open` returned.
            recentred: whether the samples are all of one domain, which the model may see from its own mean,
                if it gains from that and there are at least :data:`FEWEST_TO_CENTRE`.

        Raises:
            InputError: a feature or a logit is NaN or infinite.
        """
        both = self._compute_all(data, recentred, lambda out: require_finite(torch.cat(out, dim=1).float()))
        width = self.stored.card.bottleneck_width
        probabilities = both[:, width:].softmax(-1)
        found = (both[:, :width], probabilities, probabilities.max(-1).values)
        return Outputs(*(each.detach().cpu().numpy() for each in found))

    def decide(
        self, data: Dataset, *, recentred: bool = False
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Find the most probable cluster of opened samples, ``(n,)``, and the confidence in it, ``(n,)``.

        In contrast to :meth:`outputs`, features and probabilities of the samples are not held in memory;
        arguments and errors are the same.
        """

        def choose(out: ModelOutput) -> torch.Tensor:
            require_finite(out.features)
            confidence, clusters = require_finite(out.logits.float()).softmax(-1).max(-1)
            return torch.stack((clusters, confidence), dim=1)

        both = self._compute_all(data, recentred, choose)
        return both[:, 0].long().cpu().numpy(), both[:, 1].cpu().numpy()

    def _compute_all(
        self, data: Dataset, recentred: bool, choose: Callable[[ModelOutput], torch.Tensor]
    ) -> torch.Tensor:
        """Compute something of every sample, by the part of the model that is not known of it yet."""
        # A model whose backbone stayed frozen reads cached features: those of its training data, and of all
        # samples that any model with the same backbone has seen, are there already. Features of images in
        # memory are not stored there, as the same images may never come again.
        card, runtime = self.stored.card, Runtime(self.compute)
        recentred = recentred and card.recentres and len(data.samples) >= FEWEST_TO_CENTRE
        apart = data.samples.kind != "images" or recentred or self.compute.cache is not None
        below = card.backbone.input_size is not None or card.backbone.name == LENGTHS
        if card.tune == "head" and below and apart:
            keep = not isinstance(data.samples, MemoryImages)
            data = frozen_features(self.stored.backbone, data, runtime, keep=keep)
            model = self.stored.head.to(runtime.device)
        else:
            model = self.stored.model.to(runtime.device)
        if recentred:
            model = recentre(model, data)
        watch = runtime.watch if data.samples.kind == "images" else None  # features take little time
        return compute_all(choose, model, data, runtime, watch=watch)


def recentre(model: ClusteringModel, data: Dataset) -> ClusteringModel:
    """Return a copy of a model's head that sees samples from their own mean.

    The samples are features of the backbone, all of one domain.
    """
    total = np.zeros(model.spec.width)
    step = max(1, _BLOCK_BYTES // (8 * model.spec.width))
    for start in range(0, len(data.samples), step):
        rows = data.samples.read(np.arange(start, min(start + step, len(data.samples))))
        rows = rows.astype(np.float64)
        total += (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).sum(0)
    return model.recentred(torch.from_numpy(total / len(data.samples)).float())


def load(
    run: str | Path,
    *,
    role: Role | None = None,
    backbone: Backbone | None = None,
    compute: Compute | None = None,
) -> Model:
    """Open the model of a finished run.

    Args:
        run: run folder.
        role: side of the model; a model of the other side is refused. ``None`` takes both.
        backbone: encoder, if the model was trained with a module of the caller's own.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: there is no finished run in the folder, or the role is wrong.
        DamagedFileError: the model file is not as it was written, does not fit its own description, or holds
            NaN or infinity.
    """
    stored = load_model(Path(run), role=role, backbone=backbone)
    return Model(stored, compute or Compute())
