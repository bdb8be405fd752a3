"""DeepCluster: in turn, cluster the features by k-means and learn to predict the clusters.

Source: Caron et al., Deep clustering for unsupervised learning of visual features, ECCV 2018; its k-means, on
whitened features, is that of Section 3.3, and scikit-learn refills empty clusters as Section 3.4 does.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from pydantic import Field
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from torch.nn import functional

from ucds.baselines.loop import Clustering, Loop
from ucds.baselines.views import ResizedImageView
from ucds.config import ModelSettings
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError
from ucds.gradients.prediction import encode
from ucds.gradients.prepare import prepare, torch_generator
from ucds.gradients.session import Session
from ucds.math.arrays import DoubleArray, FloatArray, IntArray
from ucds.networks.model import ClusteringModel
from ucds.training.seeds import derive, numpy_generator

_NAME = "deepcluster"

_RANK = 1e-10
"""Directions with less than this share of the largest variance count as having no variance."""


class DeepClusterSettings(ModelSettings):
    """Settings of DeepCluster; the defaults are the authors' for ImageNet."""

    epochs: int = Field(500, ge=1, description="number of rounds of clustering and learning")
    batch_size: int = Field(256, ge=2, description="samples per step; at least one of each cluster")
    learning_rate: float = Field(0.05, gt=0, description="learning rate of SGD")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of all layers but the re-initialised one")
    weight_decay: float = Field(1e-5, ge=0, description="weight decay of SGD")
    principal_components: int = Field(
        256, ge=1, description="whitened components of the features, for k-means"
    )
    rectified: bool = Field(True, description="ReLU between the features and the last layer, in training")
    iterations: int = Field(20, ge=1, description="largest number of iterations of k-means")
    crop: float = Field(224 / 256, gt=0, le=1, description="side of crops, as a share of the image's")


def cluster_by_deepcluster(
    session: Session[DeepClusterSettings], encoder: Encoder, data: Dataset, n_clusters: int
) -> Clustering:
    """Cluster samples by k-means on features that are trained to tell the clusters apart.

    The result is the clustering of the last features; the model's predictions belong to the epoch before.
    """
    settings = session.settings
    if n_clusters > min(settings.batch_size, len(data.samples)):
        raise InputError(
            f"{n_clusters} clusters need at least {n_clusters} samples in total and in each batch"
        )
    learning = prepare(session, encoder, data, n_clusters, side=_NAME)
    model, view = learning.trained, learning.data.view
    if len(view.input_shape) > 1:  # images
        view = ResizedImageView(encoder.spec, view, settings.crop)
    own = Dataset(learning.data.samples, view)
    steps = -(-len(own.samples) // min(settings.batch_size, len(own.samples)))
    loop = Loop(session, _NAME, model, make_optimiser(model, settings), own, settings.epochs * steps)
    for epoch in range(settings.epochs):
        labels = _cluster(session, model, own, epoch)
        _reset_prototypes(model, session.seed, epoch)
        # Each batch holds equally many samples of every cluster that is not empty.
        filled = np.unique(labels, return_inverse=True)[1]
        sampler = DomainBalancedSampler(filled, settings.batch_size, session.seed)
        targets = torch.from_numpy(labels).to(session.runtime.device)
        for batch in loop.epoch(sampler):
            features = loop.forward(batch.inputs).features
            # As in the released code, k-means sees the features before the ReLU, the last layer after it.
            logits = (features.relu() if settings.rectified else features) @ model.prototypes
            loop.update(pseudo_labels=functional.cross_entropy(logits, targets[batch.index]))
    labels = _cluster(session, model, own, settings.epochs)
    loop.finish(functional.one_hot(torch.from_numpy(labels), n_clusters).float())
    found = loop.seconds, loop.images_seen
    return Clustering(labels, *found, model.eval(), parameters=learning.count_parameters())


def _cluster(
    session: Session[DeepClusterSettings], model: ClusteringModel, data: Dataset, epoch: int
) -> IntArray:
    """Cluster the current features by k-means, from a random start of this epoch."""
    settings = session.settings
    features = encode(model, data, session.runtime, settings.prediction_batch_size)
    points = normalize(whiten(features.cpu().numpy(), settings.principal_components))
    rng = numpy_generator(session.seed, _NAME, "k-means", epoch)
    start = points[rng.choice(len(points), model.n_clusters, replace=False)]
    kmeans = KMeans(len(start), init=start, n_init=1, max_iter=settings.iterations, tol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of fewer different points than clusters
        return np.asarray(kmeans.fit_predict(points), dtype=np.int64)


@torch.no_grad()
def _reset_prototypes(model: ClusteringModel, seed: int, epoch: int) -> None:
    """Re-initialise the last layer, because the clusters of two epochs are numbered differently."""
    generator = torch_generator(derive(seed, _NAME, "prototypes", epoch))
    model.prototypes.copy_(torch.empty(model.prototypes.shape).normal_(0, 0.01, generator=generator))


def make_optimiser(model: ClusteringModel, settings: DeepClusterSettings) -> torch.optim.Optimizer:
    """Make SGD with momentum for all layers but the last one, which is re-initialised at every epoch."""
    body = [weight for weight in model.parameters() if weight is not model.prototypes]
    groups: list[dict[str, Any]] = [
        {"params": body, "momentum": settings.momentum},
        {"params": [model.prototypes]},
    ]
    return torch.optim.SGD(groups, lr=settings.learning_rate, weight_decay=settings.weight_decay)


def whiten(features: FloatArray, n_components: int) -> DoubleArray:
    """Project ``(n, d)`` features on their principal components, each brought to variance one.

    Components come by falling variance, ``n_components`` at most; directions without variance are dropped.
    """
    with np.errstate(invalid="ignore"):  # of features that are all alike
        pca = PCA(whiten=True, svd_solver="full").fit(features.astype(np.float64))
    variances = pca.explained_variance_
    kept = max(1, min(n_components, int((variances > _RANK * variances[0]).sum())))
    return np.asarray(pca.transform(features.astype(np.float64))[:, :kept])
