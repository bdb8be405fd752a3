"""Types of arrays that annotations share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
"""Single precision: features, and what is computed of them."""

DoubleArray = NDArray[np.float64]
"""Double precision: statistics, proportions and points of figures."""

IntArray = NDArray[np.int64]
