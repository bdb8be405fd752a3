"""Builds the model of a run and decides which part of it is trained, and on which samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ucds.choices import Tune
from ucds.config import MethodSettings, ModelSettings, Settings
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples, draw_samples, subset
from ucds.encoders.spec import LENGTHS
from ucds.errors import InputError
from ucds.gradients.checkpoint import StageResult
from ucds.gradients.session import Session
from ucds.math.arrays import IntArray
from ucds.math.privacy import Guarantee
from ucds.networks.model import ClusteringModel
from ucds.networks.spec import Backbone, identity_backbone
from ucds.training.features import frozen_features
from ucds.training.seeds import numpy_generator, torch_generator


@dataclass(frozen=True)
class Training:
    """An encoder, the part of the model that the stages train, and what has come of them; for either side.

    Attributes:
        backbone: encoder without its bottleneck, which is built when it is first needed.
        trained: part that the stages train: the whole model, or its head; in evaluation mode once they are
            finished.
        data: samples and views that ``trained`` takes.
        tune: name of that part.
        stages: results of the stages, in order; none before they are finished.
        recentres: whether the model labels a set of samples better from the set's own mean, see
            :meth:`ucds.networks.model.ClusteringModel.recentred`.
        privacy: guarantee of differential privacy; ``None`` without one.
    """

    backbone: Backbone
    trained: ClusteringModel
    data: Dataset
    tune: Tune
    stages: tuple[StageResult, ...] = ()
    recentres: bool = False
    privacy: Guarantee | None = None

    @cached_property
    def model(self) -> ClusteringModel:
        """Whole model, which shares the parameters of what was trained."""
        if self.tune == "full":
            return self.trained
        return self.trained.on(self.backbone)


def draw_dataset(
    session: Session[MethodSettings],
    data: Dataset,
    first: Sequence[IntArray] = (),
    use: str = "are clustered; the model gives the others their clusters",
) -> tuple[Dataset, IntArray]:
    """Draw samples where a domain has more than ``most_samples``.

    What is done with the drawn ones takes bounded time and memory, whatever the size of the data. Groups of
    positions in ``first`` are drawn before all others, the first group before the second. The words ``use``
    tell the user what becomes of the drawn samples, and of the others.

    Returns:
        The data drawn, and its positions ``(m,)`` in ``data``, ascending.
    """
    runtime, most = session.runtime, session.settings.most_samples
    positions = draw_samples(data.samples, most, numpy_generator(runtime.seed, "draw-samples"), first)
    if len(positions) == len(data.samples):
        return data, positions
    if runtime.rank == 0:
        drawn = f"{len(positions):,} of {len(data.samples):,} samples, drawn at random (setting most_samples)"
        runtime.reporter.say(f"{drawn}, {use}")
    return Dataset(subset(data.samples, positions), data.view), positions


def refuse_copies(samples: Samples, n_clusters: int) -> None:
    """Make sure that there are as many different samples as clusters, unless there are fewer samples."""
    needed = min(n_clusters, len(samples))
    different: set[bytes] = set()
    for key in samples.keys:  # nearly always the first ones are enough
        different.add(key)
        if len(different) == needed:
            return
    raise InputError(
        f"only {len(different)} of the {len(samples):,} samples are different: they cannot form {n_clusters} "
        "clusters"
    )


def prepare(
    session: Session[ModelSettings], backbone: Backbone, data: Dataset, n_clusters: int, *, side: str
) -> Training:
    """Build a model with new bottleneck and prototypes for a run on ``data``.

    With ``tune = "head"`` the backbone stays frozen: its features are computed once, and the stages are
    trained on them. Two sides with the same seed start from different random weights.

    Raises:
        InputError: there are fewer different samples than clusters.
    """
    settings, runtime = session.settings, session.runtime
    refuse_copies(data.samples, n_clusters)
    tune = "head" if backbone.spec.name == LENGTHS else settings.tune  # nothing below can be trained
    if tune == "head":
        data = frozen_features(backbone, data, runtime, batch_size=settings.prediction_batch_size)
    body = backbone if tune == "full" else identity_backbone(backbone.spec.width)
    width, generator = settings.bottleneck_width, torch_generator(runtime.seed, side)
    trained = ClusteringModel(body, n_clusters, bottleneck_width=width, generator=generator)
    return Training(backbone, trained.to(runtime.device), data, tune)


def conclude(session: Session[Settings], training: Training) -> Training:
    """Gather the result of a run whose stages are finished."""
    training.trained.eval()
    return replace(training, stages=tuple(session.results))
