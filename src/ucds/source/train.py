"""The source owner's training run, from samples to a model."""

from __future__ import annotations

from pathlib import Path

from ucds.backbones import Backbone
from ucds.data.samples import Samples, split_validation, subset
from ucds.models import ClusteringModel
from ucds.source.learn import learn_source
from ucds.source.recipe import train_source_by_transport
from ucds.training.prepare import prepare
from ucds.training.session import Session
from ucds.training.stage import TrainingData


def train_source(
    session: Session, backbone: Backbone, data: TrainingData, n_clusters: int, *, cache: Path | None = None
) -> ClusteringModel:
    """Learn a clustering model from unlabelled source domains, by the recipe of the configuration.

    With the paper's, part of the samples is kept to choose the model with.

    Args:
        session: the run; afterwards it holds the result of the stage.
        backbone: pre-trained encoder.
        data: source samples and views.
        n_clusters: the paper's ``K``.
        cache: folder for frozen features, with ``tune = "head"``.

    Returns:
        The whole model, in evaluation mode.
    """
    if session.config.recipe == "ucds":
        return train_source_by_transport(session, backbone, data, n_clusters, cache=cache)
    training = prepare(session, backbone, data, n_clusters, side="source", cache=cache)
    samples = training.data.samples
    train: Samples = samples
    validation: Samples = samples
    evaluated: Samples = data.samples
    if session.config.validation_fraction > 0:
        train, kept = split_validation(samples, session.config.validation_fraction, session.runtime.seed)
        validation, evaluated = kept, subset(data.samples, kept.index, keep_domains=True)
    learn_source(session, training.trained, TrainingData(train, training.data.view), validation)
    session.save_evaluations(evaluated)
    return training.model.eval()
