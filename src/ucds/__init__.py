"""Unsupervised clustering under domain shift, with source privacy.

Importing the package loads neither the provider's side nor the client's: each name brings in its own when
it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ucds.errors import InputError

if TYPE_CHECKING:
    from ucds.backbones import Backbone as Backbone
    from ucds.backbones import build_backbone as build_backbone
    from ucds.backbones import module_backbone as module_backbone
    from ucds.config import ConsensusSettings as ConsensusSettings
    from ucds.config import PCDSettings as PCDSettings
    from ucds.errors import DamagedFileError as DamagedFileError
    from ucds.errors import InputError as InputError
    from ucds.errors import NoSpaceError as NoSpaceError
    from ucds.errors import RefusedError as RefusedError
    from ucds.errors import ServiceUnavailableError as ServiceUnavailableError
    from ucds.errors import UcdsWarning as UcdsWarning
    from ucds.errors import UserError as UserError
    from ucds.evaluation import evaluate as evaluate
    from ucds.labels.client import LabelClient as LabelClient
    from ucds.labels.cluster_labels import ClusterLabels as ClusterLabels
    from ucds.math.metrics import clustering_accuracy as clustering_accuracy
    from ucds.serving.serve import serve as serve
    from ucds.source.estimator import SourceClustering as SourceClustering
    from ucds.source.label import label as label
    from ucds.source.train import train_source as train_source
    from ucds.target.ask import query as query
    from ucds.target.estimator import TargetClustering as TargetClustering
    from ucds.target.predict import predict as predict
    from ucds.target.train import train_target as train_target
    from ucds.training.inputs import CacheOptions as CacheOptions
    from ucds.training.inputs import EncoderOptions as EncoderOptions
    from ucds.training.loaded import Model as Model
    from ucds.training.loaded import load as load
    from ucds.training.run import RunOptions as RunOptions

_HOMES = {
    "Backbone": "backbones",
    "CacheOptions": "training.inputs",
    "ClusterLabels": "labels.cluster_labels",
    "ConsensusSettings": "config",
    "DamagedFileError": "errors",
    "EncoderOptions": "training.inputs",
    "InputError": "errors",
    "LabelClient": "labels.client",
    "Model": "training.loaded",
    "NoSpaceError": "errors",
    "PCDSettings": "config",
    "RefusedError": "errors",
    "RunOptions": "training.run",
    "ServiceUnavailableError": "errors",
    "SourceClustering": "source.estimator",
    "TargetClustering": "target.estimator",
    "UcdsWarning": "errors",
    "UserError": "errors",
    "build_backbone": "backbones",
    "clustering_accuracy": "math.metrics",
    "evaluate": "evaluation",
    "label": "source.label",
    "load": "training.loaded",
    "module_backbone": "backbones",
    "predict": "target.predict",
    "query": "target.ask",
    "serve": "serving.serve",
    "train_source": "source.train",
    "train_target": "target.train",
}
"""Module of each public name."""

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("ucds")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ucds.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
