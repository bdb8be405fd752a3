"""Measures what a person's answers gain, with a person who is simulated from the classes.

The report of a run asks whether pairs of groups of samples belong to one cluster. Here the classes answer,
and a second model is trained with the answers, as ``train-target --constraints`` does.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ucds.backbones import identity_backbone
from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.errors import UcdsWarning
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.constraints import Constraints, Pair, carry_shares
from ucds.math.exemplars import find_exemplars
from ucds.math.metrics import clustering_accuracy
from ucds.math.questions import choose_questions
from ucds.target.consensus import STAGE, agree, correct, describe_clusters
from ucds.training.fitting import BATCH, fit_prototypes, start_from_clusters
from ucds.training.prediction import outputs
from ucds.training.runtime import Runtime
from ucds.training.seeds import numpy_generator
from ucds.training.session import Session

_TYPICAL = 3  # typical samples of a cluster: a question shows no more


@dataclass(frozen=True)
class Trial:
    """What the answers to the questions of one report gained.

    Attributes:
        before: accuracy of the first model.
        after: accuracy of the model that was trained with the answers.
        same: number of answers "one cluster".
        different: number of answers "two clusters".
    """

    before: float
    after: float
    same: int
    different: int

    @property
    def gain(self) -> float:
        """Points of accuracy that the answers gained."""
        return 100 * (self.after - self.before)


def try_answers(
    vectors: FloatArray,
    classes: IntArray,
    n_clusters: int,
    seed: int,
    settings: ConsensusSettings | None = None,
) -> Trial:
    """Train a model without a provider, answer the questions of its report, and train again.

    Args:
        vectors: ``(n, d)`` frozen features of one domain.
        classes: ``(n,)`` class of each sample.
        n_clusters: number of clusters, K.
        seed: seed of both trainings.
        settings: settings of the method; the defaults if ``None``.
    """
    settings = settings or ConsensusSettings()
    agreed = agree(vectors, n_clusters, settings, numpy_generator(seed, STAGE))
    features, before = _fit(vectors, agreed.shares, seed, settings)
    questions = choose_questions(features, before, find_exemplars(features, before, _TYPICAL))
    answers = answer(questions, classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UcdsWarning)  # of answers that need more clusters
        corrected = correct(agreed, vectors, answers)
        shares = carry_shares(agreed.shares, agreed.partition, corrected)
        _, after = _fit(vectors, shares, seed, settings)
    return Trial(
        clustering_accuracy(before.argmax(1), classes),
        clustering_accuracy(after.argmax(1), classes),
        len(answers.together),
        len(answers.apart),
    )


def answer(questions: Sequence[Pair], classes: IntArray) -> Constraints:
    """Answer whether pairs of groups belong to one cluster, by the class that most of a group has.

    Args:
        questions: pairs of groups of samples.
        classes: ``(n,)`` class of each sample.
    """
    same = [_class_of(one, classes) == _class_of(other, classes) for one, other in questions]
    return Constraints(
        tuple(pair for pair, yes in zip(questions, same, strict=True) if yes),
        tuple(pair for pair, yes in zip(questions, same, strict=True) if not yes),
    )


def _class_of(group: IntArray, classes: IntArray) -> int:
    return int(np.bincount(classes[group]).argmax())


def _fit(
    vectors: FloatArray, shares: FloatArray, seed: int, settings: ConsensusSettings
) -> tuple[FloatArray, FloatArray]:
    """Fit a model to shares of clusters; return its features ``(n, d_f)`` and probabilities ``(n, K)``."""
    session = Session(Runtime(accelerator="cpu", seed=seed), settings)
    training, targets = start_from_clusters(
        session,
        STAGE,
        identity_backbone(vectors.shape[1]),
        Dataset(VectorSamples(vectors), VectorView()),
        shares.shape[1],
        lambda read: describe_clusters(read, shares, settings.bottleneck_width, 0.0),
        None,
    )
    fit_prototypes(session, "fit-target", training.trained, training.data, targets)
    data = training.data
    found = outputs(training.trained, data.samples, data.view, session.runtime, BATCH)
    return found.features.cpu().numpy(), found.logits.softmax(-1).cpu().numpy()
