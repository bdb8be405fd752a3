"""The public names, and where each lives: read by type checkers, and by ``__init__.py``."""

from ucds.auditing.audit import audit as audit
from ucds.bulk.features import WrittenFeatures as WrittenFeatures
from ucds.bulk.features import features as features
from ucds.config import ConsensusSettings as ConsensusSettings
from ucds.config import PCDSettings as PCDSettings
from ucds.encoders.encoder import Encoder as Encoder
from ucds.encoders.encoder import FunctionEncoder as FunctionEncoder
from ucds.errors import DamagedFileError as DamagedFileError
from ucds.errors import InputError as InputError
from ucds.errors import NoSpaceError as NoSpaceError
from ucds.errors import RefusedError as RefusedError
from ucds.errors import ServiceUnavailableError as ServiceUnavailableError
from ucds.errors import UcdsWarning as UcdsWarning
from ucds.errors import UserError as UserError
from ucds.evaluation import evaluate as evaluate
from ucds.exports.export import export as export
from ucds.gradients.pcd_loss import PCDLoss as PCDLoss
from ucds.labels.client import LabelClient as LabelClient
from ucds.labels.cluster_labels import ClusterLabels as ClusterLabels
from ucds.math.metrics import clustering_accuracy as clustering_accuracy
from ucds.networks.build import build_network as build_network
from ucds.networks.encoder import NetworkEncoder as NetworkEncoder
from ucds.networks.encoder import module_encoder as module_encoder
from ucds.reports.page.report import report as report
from ucds.reviewing.command import review as review
from ucds.serving.limits import Limits as Limits
from ucds.serving.serve import serve as serve
from ucds.source.label import label as label
from ucds.source.source_clustering import SourceClustering as SourceClustering
from ucds.source.train import train_source as train_source
from ucds.target.ask import query as query
from ucds.target.predict import predict as predict
from ucds.target.questions import Question as Question
from ucds.target.review import Review as Review
from ucds.target.target_clustering import TargetClustering as TargetClustering
from ucds.target.train import train_target as train_target
from ucds.training.loaded import Model as Model
from ucds.training.loaded import load as load
from ucds.training.options import BulkOptions as BulkOptions
from ucds.training.options import Compute as Compute
from ucds.training.options import EncoderOptions as EncoderOptions
from ucds.training.options import RunOptions as RunOptions

__version__: str
