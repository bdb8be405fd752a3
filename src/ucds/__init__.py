"""Unsupervised clustering under domain shift, with source privacy.

Importing the package loads neither side of the wall: each name brings in its own when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ucds.config import Config as Config
    from ucds.errors import UcdsWarning as UcdsWarning
    from ucds.errors import UserError as UserError
    from ucds.labels.cluster_labels import ClusterLabels as ClusterLabels
    from ucds.source.estimator import SourceClustering as SourceClustering
    from ucds.target.estimator import TargetClustering as TargetClustering

_HOMES = {
    "ClusterLabels": "ucds.labels.cluster_labels",
    "Config": "ucds.config",
    "SourceClustering": "ucds.source.estimator",
    "TargetClustering": "ucds.target.estimator",
    "UcdsWarning": "ucds.errors",
    "UserError": "ucds.errors",
}

__all__ = ["ClusterLabels", "Config", "SourceClustering", "TargetClustering", "UcdsWarning", "UserError"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
