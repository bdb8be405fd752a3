"""Directions in which features vary that are known before any sample is seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ucds.backbones import Backbone
from ucds.math.private_prototypes import DIRECTIONS


def public_directions(backbone: Backbone) -> NDArray[np.float64] | None:
    """Find the directions in which the last layer of an encoder moves the features most.

    They are the left singular vectors of the layer's weights, and so as public as the encoder. Features vary
    mostly along few of them, while random directions keep only a part of every difference between features.

    Args:
        backbone: encoder.

    Returns:
        ``(d, p)`` orthonormal columns, widest first, :data:`ucds.math.private_prototypes.DIRECTIONS` or as
        many as there are; ``None`` if no layer of the encoder returns as many values as there are features.
    """
    layers = [
        one for one in backbone.module.parameters() if one.dim() > 1 and len(one) == backbone.spec.width
    ]
    if not layers:
        return None
    last = layers[-1].detach().double().flatten(1).cpu().numpy()
    return np.asarray(np.linalg.svd(last, full_matrices=False)[0][:, :DIRECTIONS])
