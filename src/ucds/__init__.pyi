"""The public names, and where each lives: read by type checkers, and when the package is imported."""

from .auditing.audit import audit as audit
from .backbones import Backbone as Backbone
from .backbones import build_backbone as build_backbone
from .backbones import module_backbone as module_backbone
from .bulk.features import WrittenFeatures as WrittenFeatures
from .bulk.features import features as features
from .config import ConsensusSettings as ConsensusSettings
from .config import PCDSettings as PCDSettings
from .errors import DamagedFileError as DamagedFileError
from .errors import InputError as InputError
from .errors import NoSpaceError as NoSpaceError
from .errors import RefusedError as RefusedError
from .errors import ServiceUnavailableError as ServiceUnavailableError
from .errors import UcdsWarning as UcdsWarning
from .errors import UserError as UserError
from .evaluation import evaluate as evaluate
from .exports.export import export as export
from .labels.client import LabelClient as LabelClient
from .labels.cluster_labels import ClusterLabels as ClusterLabels
from .math.metrics import clustering_accuracy as clustering_accuracy
from .reports.page.report import report as report
from .reviewing.command import review as review
from .serving.limits import Limits as Limits
from .serving.serve import serve as serve
from .source.estimator import SourceClustering as SourceClustering
from .source.label import label as label
from .source.train import train_source as train_source
from .target.ask import query as query
from .target.estimator import TargetClustering as TargetClustering
from .target.predict import predict as predict
from .target.questions import Question as Question
from .target.review import Review as Review
from .target.train import train_target as train_target
from .training.loaded import Model as Model
from .training.loaded import load as load
from .training.options import BulkOptions as BulkOptions
from .training.options import Compute as Compute
from .training.options import EncoderOptions as EncoderOptions
from .training.options import RunOptions as RunOptions

__version__: str
