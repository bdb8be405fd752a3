"""Chooses the samples that a run works on, and holds its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ucds.choices import Tune
from ucds.config import MethodSettings, ModelSettings
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples, draw_samples, subset
from ucds.encoders.encoder import Encoder
from ucds.encoders.spec import VECTORS
from ucds.errors import InputError
from ucds.heads import Head
from ucds.math.arrays import IntArray
from ucds.math.privacy import Guarantee
from ucds.training.results import StageResult
from ucds.training.seeds import numpy_generator
from ucds.training.work import Work


@dataclass(frozen=True)
class Training:
    """A model as a run has learned it; for either side and any method."""

    encoder: Encoder  # from inputs to features, frozen or trained
    head: Head  # layers above the encoder
    data: Dataset  # samples that the head takes, features of the encoder; those that a trained encoder takes
    tune: Tune  # part that was trained
    stages: tuple[StageResult, ...]  # in order
    recentres: bool = False  # whether it labels a set of samples better if its own mean is subtracted
    privacy: Guarantee | None = None  # of differential privacy


def tuned_part(settings: MethodSettings | ModelSettings, encoder: Encoder) -> Tune:
    """Return the part to train: the head alone if the encoder takes vectors as they are."""
    return "head" if encoder.spec.name in VECTORS else settings.tune


def draw_dataset(
    work: Work[MethodSettings],
    data: Dataset,
    first: Sequence[IntArray] = (),
    use: str = "are clustered; the model gives the others their clusters",
) -> tuple[Dataset, IntArray]:
    """Draw at most ``most_samples`` samples of each domain.

    What is done with the drawn ones takes bounded time and memory, whatever the size of the data. Groups of
    positions in ``first`` are drawn before all others, the first group before the second. The words ``use``
    tell the user what becomes of the drawn samples, and of the others. The data drawn is returned with its
    positions ``(m,)`` in ``data``, ascending.
    """
    most = work.settings.most_samples
    positions = draw_samples(data.samples, most, numpy_generator(work.seed, "draw-samples"), first)
    if len(positions) == len(data.samples):
        return data, positions
    drawn = f"{len(positions):,} of {len(data.samples):,} samples, drawn at random (setting most_samples)"
    work.say(f"{drawn}, {use}")
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
