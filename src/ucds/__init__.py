"""Unsupervised clustering under domain shift, with source privacy.

Importing the package loads neither the provider's modules nor the client's, nor torch: a public name loads
its own module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ucds.auditing.audit import audit as audit
    from ucds.backbones import Backbone as Backbone
    from ucds.backbones import build_backbone as build_backbone
    from ucds.backbones import module_backbone as module_backbone
    from ucds.bulk.features import WrittenFeatures as WrittenFeatures
    from ucds.bulk.features import features as features
    from ucds.bulk.options import BulkOptions as BulkOptions
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
    from ucds.exports.export import export as export
    from ucds.exports.hub import from_pretrained as from_pretrained
    from ucds.exports.hub import push_to_hub as push_to_hub
    from ucds.labels.client import LabelClient as LabelClient
    from ucds.labels.cluster_labels import ClusterLabels as ClusterLabels
    from ucds.math.metrics import clustering_accuracy as clustering_accuracy
    from ucds.reports.page.report import report as report
    from ucds.reviewing.command import review as review
    from ucds.serving.limits import Limits as Limits
    from ucds.serving.serve import serve as serve
    from ucds.source.estimator import SourceClustering as SourceClustering
    from ucds.source.label import label as label
    from ucds.source.train import train_source as train_source
    from ucds.target.ask import query as query
    from ucds.target.estimator import TargetClustering as TargetClustering
    from ucds.target.predict import predict as predict
    from ucds.target.questions import Question as Question
    from ucds.target.review import Review as Review
    from ucds.target.train import train_target as train_target
    from ucds.training.loaded import Model as Model
    from ucds.training.loaded import load as load
    from ucds.training.options import Compute as Compute
    from ucds.training.options import EncoderOptions as EncoderOptions
    from ucds.training.options import RunOptions as RunOptions

_NAMES = {
    "auditing.audit": ["audit"],
    "backbones": ["Backbone", "build_backbone", "module_backbone"],
    "bulk.features": ["WrittenFeatures", "features"],
    "bulk.options": ["BulkOptions"],
    "config": ["ConsensusSettings", "PCDSettings"],
    "errors": [
        "DamagedFileError",
        "InputError",
        "NoSpaceError",
        "RefusedError",
        "ServiceUnavailableError",
        "UcdsWarning",
        "UserError",
    ],
    "evaluation": ["evaluate"],
    "exports.export": ["export"],
    "exports.hub": ["from_pretrained", "push_to_hub"],
    "labels.client": ["LabelClient"],
    "labels.cluster_labels": ["ClusterLabels"],
    "math.metrics": ["clustering_accuracy"],
    "reports.page.report": ["report"],
    "serving.limits": ["Limits"],
    "reviewing.command": ["review"],
    "serving.serve": ["serve"],
    "source.estimator": ["SourceClustering"],
    "source.label": ["label"],
    "source.train": ["train_source"],
    "target.ask": ["query"],
    "target.estimator": ["TargetClustering"],
    "target.predict": ["predict"],
    "target.questions": ["Question"],
    "target.review": ["Review"],
    "target.train": ["train_target"],
    "training.options": ["Compute", "EncoderOptions", "RunOptions"],
    "training.loaded": ["Model", "load"],
}
"""Public names of each module."""
_MODULES = {name: f"ucds.{module}" for module, names in _NAMES.items() for name in names}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("ucds")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
