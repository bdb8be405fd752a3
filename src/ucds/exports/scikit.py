"""Makes a plain scikit-learn object of a model's head: embeddings of its encoder in, clusters out."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from ucds.errors import InputError
from ucds.models import ClusteringModel


@torch.no_grad()
def as_scikit(model: ClusteringModel) -> Pipeline:
    """Return a fitted pipeline whose ``predict`` and ``predict_proba`` are those of the model.

    The bottleneck is linear, its batch normalisation too once training is over, and so are the prototypes:
    together they are one linear map, whose softmax is what a multinomial logistic regression computes. So
    the pipeline consists of scikit-learn's own classes only, and needs nothing of this package.

    Args:
        model: model in evaluation mode.
    """
    linear, norm = model.encoder.bottleneck.linear, model.encoder.bottleneck.norm
    assert isinstance(linear, torch.nn.Linear)
    assert isinstance(norm, torch.nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    prototypes = model.prototypes.double()
    scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    shift = (linear.bias.double() - norm.running_mean.double()) * scale + norm.bias.double()
    weights = (prototypes.T @ (scale[:, None] * linear.weight.double())).cpu().numpy()
    biases = (prototypes.T @ shift).cpu().numpy()
    unit_length = Normalizer()
    unit_length.n_features_in_ = weights.shape[1]
    steps = [("unit_length", unit_length)] if model.encoder.unit_features else []
    return Pipeline([*steps, ("clusters", _regression(weights, biases))])


def _regression(weights: np.ndarray, biases: np.ndarray) -> LogisticRegression:
    """Return a logistic regression with given weights ``(K, d)`` and biases ``(K,)``."""
    clusters = np.arange(len(weights))
    if len(weights) == 2:  # scikit-learn has one row for two classes: that of the second against the first
        weights, biases = weights[1:] - weights[:1], biases[1:] - biases[:1]
    regression = LogisticRegression()
    regression.coef_, regression.intercept_, regression.classes_ = weights, biases, clusters
    regression.n_features_in_ = weights.shape[1]
    return regression


def scikit_bytes(model: ClusteringModel) -> bytes:
    """Return the contents of a ``.skops`` file of :func:`as_scikit`, which runs no code when it is opened.

    Raises:
        InputError: the package is not installed.
    """
    try:
        import skops.io
    except ImportError:
        raise InputError("scikit-learn objects need a further package: pip install 'ucds[export]'") from None
    return bytes(skops.io.dumps(as_scikit(model)))
