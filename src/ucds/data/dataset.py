"""A data set as a model takes it: samples, with the views to train on and to predict from."""

from __future__ import annotations

from dataclasses import dataclass

from ucds.data.samples import Samples
from ucds.data.views import View


@dataclass(frozen=True)
class Dataset:
    """Unlabelled samples with their views.

    Attributes:
        samples: samples of one or several domains.
        view: turns raw samples into inputs of the model, with augmentation for training and without for
            prediction.
    """

    samples: Samples
    view: View
