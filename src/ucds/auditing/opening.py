"""Opens what an audit needs: the subject, members and others, and the attacker's features of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ucds.auditing.subject import ModelSubject, ServiceSubject, Subject
from ucds.backbones import Backbone, identity_backbone
from ucds.choices import Accelerator
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples, subset
from ucds.data.sources import Source
from ucds.errors import InputError
from ucds.labels.client import LabelClient
from ucds.math.arrays import FloatArray
from ucds.math.claims import PrivacyClaim
from ucds.training.features import frozen_features
from ucds.training.inputs import open_for_prediction
from ucds.training.model_file import StoredModel, load_model
from ucds.training.options import CacheOptions, EncoderOptions
from ucds.training.prediction import encode
from ucds.training.progress import Reporter
from ucds.training.runtime import Runtime
from ucds.training.seeds import numpy_generator


@dataclass(frozen=True)
class Opened:
    """What the attacks work on.

    Attributes:
        subject: model or service.
        members: samples that the model was trained on.
        others: samples that it was not trained on.
        images: whether the samples are images.
        features: ``(m, d)`` and ``(n, d)`` features of members and others under the attacker's encoder.
        privacy: guarantee that the model carries; ``None`` without one.
        proportions: ``(K,)`` sizes of the source's clusters; ``None`` if they are not known here.
        bottleneck: the model's own features of members and of others, and its prototypes; ``None`` of a
            service.
    """

    subject: Subject
    members: Samples
    others: Samples
    images: bool
    features: tuple[FloatArray, FloatArray]
    privacy: PrivacyClaim | None = None
    proportions: NDArray[np.float64] | None = None
    bottleneck: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def spread(self) -> float:
        """Mean standard deviation of an entry of the features of others."""
        return float(self.features[1].std(0).mean())

    def keep(self, masks: Sequence[NDArray[np.bool_]]) -> Opened:
        """Return the same of a service with some of the members and some of the others only."""
        both = (self.members, self.others)
        kept = [subset(samples, np.flatnonzero(mask)) for samples, mask in zip(both, masks, strict=True)]
        features = [rows[mask] for rows, mask in zip(self.features, masks, strict=True)]
        return replace(self, members=kept[0], others=kept[1], features=(features[0], features[1]))


def open_model(
    run: Path,
    members: Source,
    others: Source,
    encoder: EncoderOptions | None,
    most: int,
    seed: int,
    accelerator: Accelerator,
    cache: CacheOptions,
    reporter: Reporter,
) -> Opened:
    """Open a model in this process; the arguments are those of :func:`ucds.auditing.audit.audit`."""
    stored = load_model(run, role="source")
    runtime = Runtime(accelerator=accelerator, seed=seed, reporter=reporter)
    card = stored.card
    attacker = Backbone(stored.model.encoder.backbone, card.backbone, card.weights)
    if encoder is not None and card.backbone.input_size is not None:
        attacker = encoder.build()
    both = _open_both(
        members, others, Backbone(attacker.module, card.backbone, ""), most, seed, cache, reporter
    )
    subject = ModelSubject(stored, runtime)
    return Opened(
        subject,
        both[0].samples,
        both[1].samples,
        card.backbone.input_size is not None,
        _features(both, attacker, runtime, cache),
        card.privacy,
        stored.proportions.double().mean(0).numpy(),
        _bottleneck(stored, both, runtime, cache),
    )


def open_service(
    client: LabelClient,
    members: Source,
    others: Source,
    encoder: EncoderOptions | None,
    most: int,
    seed: int,
    cache: CacheOptions,
    reporter: Reporter,
) -> Opened:
    """Open a label service; the arguments are those of :func:`ucds.auditing.audit.audit`."""
    runtime = Runtime(accelerator="cpu", seed=seed, reporter=reporter)
    info = client.info()
    if info.accepts == "embeddings":
        assert info.width is not None
        attacker = identity_backbone(info.width)
    elif encoder is None:
        raise InputError("a service of images needs the attacker's encoder: give --backbone and --weights")
    else:
        attacker = encoder.build()
    both = _open_both(members, others, attacker, most, seed, cache, reporter)
    features = _features(both, attacker, runtime, cache)
    images = info.accepts == "images"
    subject = ServiceSubject(client, info)
    claim = None if info.privacy is None else PrivacyClaim.parse(info.privacy)
    return Opened(subject, both[0].samples, both[1].samples, images, features, claim)


def _open_both(
    members: Source,
    others: Source,
    backbone: Backbone,
    most: int,
    seed: int,
    cache: CacheOptions,
    reporter: Reporter,
) -> tuple[Dataset, Dataset]:
    """Open members and others, a random choice of each; others whose content a member has are left out."""
    opened = [
        open_for_prediction(source, backbone, "source", cache, reporter) for source in (members, others)
    ]
    known, rng = set(opened[0].samples.keys), numpy_generator(seed, "audit", "samples")
    apart = np.array([key not in known for key in opened[1].samples.keys])
    if not apart.any():
        raise InputError("all of the others are members too: give samples that the model was not trained on")
    if not apart.all():
        reporter.say(f"{(~apart).sum():,} of the others are members too, and are left out")
    usable = (np.arange(len(opened[0].samples)), np.flatnonzero(apart))
    chosen = [
        Dataset(subset(data.samples, np.sort(rng.permutation(index)[:most])), data.view)
        for data, index in zip(opened, usable, strict=True)
    ]
    return chosen[0], chosen[1]


def _features(
    both: tuple[Dataset, Dataset], attacker: Backbone, runtime: Runtime, cache: CacheOptions
) -> tuple[FloatArray, FloatArray]:
    attacker.module.to(runtime.device)
    found = []
    for data in both:
        features = frozen_features(attacker, data, runtime, cache.directory, batch_size=64).samples
        found.append(features.read(np.arange(len(features))).numpy())
    return found[0], found[1]


def _bottleneck(
    stored: StoredModel, both: tuple[Dataset, Dataset], runtime: Runtime, cache: CacheOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the model's own features, from cached ones of its backbone where it stayed frozen."""
    model, found = stored.model.to(runtime.device), []
    for data in both:
        if stored.card.tune == "head":
            backbone = Backbone(model.encoder.backbone, stored.card.backbone, stored.card.weights)
            data = frozen_features(backbone, data, runtime, cache.directory, batch_size=64)
        network = model.head() if stored.card.tune == "head" else model
        found.append(encode(network.eval(), data.samples, data.view, runtime).cpu())
    return found[0], found[1], model.prototypes.detach().cpu()
