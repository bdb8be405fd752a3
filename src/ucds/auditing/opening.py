"""Opens what an audit needs: the subject, members and others, and the attacker's features of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucds.auditing.subject import ModelSubject, ServiceSubject, Subject
from ucds.backbones import Backbone, identity_backbone
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples, subset
from ucds.data.sources import Source
from ucds.errors import InputError
from ucds.labels.client import LabelClient
from ucds.math.arrays import FloatArray
from ucds.math.privacy import PrivacyClaim
from ucds.training.features import frozen_features
from ucds.training.inputs import open_for_prediction
from ucds.training.model_file import load_model
from ucds.training.options import EncoderOptions
from ucds.training.runtime import Runtime
from ucds.training.seeds import numpy_generator


@dataclass(frozen=True)
class Opened:
    """What the attacks work on."""

    subject: Subject
    members: Samples
    others: Samples
    images: bool
    features: tuple[FloatArray, FloatArray]  # of members and others, under the attacker's encoder
    privacy: PrivacyClaim | None = None
    proportions: NDArray[np.float64] | None = None  # of the source's clusters, where they are known

    @property
    def spread(self) -> float:
        """Mean standard deviation of an entry of the features of others."""
        return float(self.features[1].std(0).mean())


def open_model(
    run: Path,
    both: tuple[Source, Source],
    encoder: EncoderOptions | None,
    most: int,
    runtime: Runtime,
) -> Opened:
    """Open a model in this process, and ``most`` of each side; its own encoder attacks if none is given."""
    stored = load_model(run, role="source")
    card = stored.card
    attacker = stored.backbone
    if encoder is not None and card.backbone.input_size is not None:
        attacker = encoder.build()
    seen = _open_both(both, Backbone(attacker.module, card.backbone, ""), most, runtime)
    return Opened(
        ModelSubject(stored, runtime),
        seen[0].samples,
        seen[1].samples,
        card.backbone.input_size is not None,
        _features(seen, attacker, runtime),
        card.privacy,
        stored.proportions.double().mean(0).numpy(),
    )


def open_service(
    client: LabelClient,
    both: tuple[Source, Source],
    encoder: EncoderOptions | None,
    most: int,
    runtime: Runtime,
) -> Opened:
    """Open a label service, and ``most`` of each side; one of images needs the attacker's encoder."""
    info = client.info()
    if info.accepts == "embeddings":
        assert info.width is not None
        attacker = identity_backbone(info.width)
    elif encoder is None:
        raise InputError("a service of images needs the attacker's encoder: give --backbone and --weights")
    else:
        attacker = encoder.build()
    seen = _open_both(both, attacker, most, runtime)
    features, images = _features(seen, attacker, runtime), info.accepts == "images"
    claim = None if info.privacy is None else PrivacyClaim.parse(info.privacy)
    return Opened(ServiceSubject(client, info), seen[0].samples, seen[1].samples, images, features, claim)


def _open_both(
    both: tuple[Source, Source], backbone: Backbone, most: int, runtime: Runtime
) -> tuple[Dataset, Dataset]:
    """Open members and others, a random choice of each; others whose content a member has are left out."""
    opened = [open_for_prediction(one, backbone, "source", runtime.compute) for one in both]
    known, rng = set(opened[0].samples.keys), numpy_generator(runtime.seed, "audit", "samples")
    apart = np.array([key not in known for key in opened[1].samples.keys])
    if not apart.any():
        raise InputError("all of the others are members too: give samples that the model was not trained on")
    if not apart.all():
        runtime.reporter.say(f"{(~apart).sum():,} of the others are members too, and are left out")
    usable = (np.arange(len(opened[0].samples)), np.flatnonzero(apart))
    chosen = [
        Dataset(subset(data.samples, np.sort(rng.permutation(index)[:most])), data.view)
        for data, index in zip(opened, usable, strict=True)
    ]
    return chosen[0], chosen[1]


def _features(
    both: tuple[Dataset, Dataset], attacker: Backbone, runtime: Runtime
) -> tuple[FloatArray, FloatArray]:
    attacker.module.to(runtime.device)
    found = []
    for data in both:
        features = frozen_features(attacker, data, runtime, batch_size=64).samples
        found.append(features.read(np.arange(len(features))).numpy())
    return found[0], found[1]
