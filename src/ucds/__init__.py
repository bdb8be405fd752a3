"""Unsupervised clustering under domain shift, with source privacy.

Importing the package loads neither the provider's modules nor the client's, nor torch: a public name loads
its own module when it is first used. The public names are those that ``__init__.pyi`` imports.
"""

import os

from lazy_loader import attach_stub

# Libraries that would send statistics of their use look here, some of them when they are imported.
for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
