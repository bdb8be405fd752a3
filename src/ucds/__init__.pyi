"""The public names, and where each lives: read by type checkers, and when the package is imported."""

from .auditing.audit import audit as audit
from .bulk.features import WrittenFeatures as WrittenFeatures
from .bulk.features import features as features
from .config import ConsensusSettings as ConsensusSettings
from .config import PCDSettings as PCDSettings
from .encoders.spec import Backbone as Backbone
from .encoders.spec import module_backbone as module_backbone
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
from .networks.build import build_backbone as build_backbone
from .page.report import report as report
from .page.review import review as review
from .serving.limits import Limits as Limits
from .serving.serve import serve as serve
from .source.label import label as label
from .source.source_clustering import SourceClustering as SourceClustering
from .source.train import train_source as train_source
from .target.actions import Proposal as Proposal
from .target.ask import query as query
from .target.predict import predict as predict
from .target.questions import Question as Question
from .target.review import Review as Review
from .target.seen import Near as Near
from .target.seen import Seen as Seen
from .target.target_clustering import TargetClustering as TargetClustering
from .target.train import train_target as train_target
from .target.update import UpdatedRun as UpdatedRun
from .target.update import update as update
from .training.loaded import Model as Model
from .training.loaded import load as load
from .training.options import BulkOptions as BulkOptions
from .training.options import Compute as Compute
from .training.options import EncoderOptions as EncoderOptions
from .training.options import RunOptions as RunOptions

__version__: str
