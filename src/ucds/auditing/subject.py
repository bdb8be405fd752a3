"""The subject of an audit: a model in this process or a label service; and members, others and features.

Model and service give one integer for each sample.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ucds.data.dataset import Dataset
from ucds.data.samples import Samples, subset
from ucds.data.sources import Source
from ucds.encoders.encoder import Encoder, IdentityEncoder
from ucds.errors import InputError, RefusedError
from ucds.labels.client import LabelClient, OverBudgetError
from ucds.labels.questions import Body, body_of_images, body_of_rows
from ucds.labels.wire import ServiceInfo
from ucds.math.arrays import FloatArray
from ucds.math.privacy import Guarantee
from ucds.training.features import frozen_features, read_all
from ucds.training.inputs import open_for_prediction, view_for
from ucds.training.model_file import StoredModel, load_model
from ucds.training.options import Compute, EncoderOptions
from ucds.training.seeds import numpy_generator

Labels = NDArray[np.int64]
Rows = NDArray[Any]
_BATCH = 64


class Subject(Protocol):
    """Answers questions with labels."""

    name: str  # of the model
    n_clusters: int  # K
    privacy: Guarantee | None  # guarantee that the model carries
    proportions: NDArray[np.float64] | None  # (K,) of the source's clusters, where they are known
    queries: int  # number of samples that were asked about so far

    def ask(self, rows: Rows) -> Labels:
        """Label ``(b, 3, S, S)`` uint8 images or ``(b, d)`` float32 vectors: ``(b,)``."""


class ModelSubject:
    """A model in this process that answers as its label service would."""

    def __init__(self, stored: StoredModel, compute: Compute) -> None:
        self.name, self.n_clusters, self.queries = stored.card.name, stored.card.n_clusters, 0
        self.privacy = stored.card.privacy
        self.proportions: NDArray[np.float64] | None = stored.proportions.mean(0, dtype=np.float64)
        self._head = stored.head
        self._encoder = stored.encoder.on(compute.accelerator, compute.precision)
        self._view = view_for(stored.card.encoder)

    def ask(self, rows: Rows) -> Labels:
        """Label rows; see :class:`Subject`."""
        self.queries += len(rows)
        return np.concatenate([self._ask(part) for part in parts_of(rows)])

    def _ask(self, rows: Rows) -> Labels:
        features = self._head.features(self._encoder(self._view.test(rows)))
        return np.asarray(self._head.logits(features).argmax(1))


class ServiceSubject:
    """A label service; every changed copy of a sample counts against the key's budget."""

    def __init__(self, client: LabelClient, info: ServiceInfo) -> None:
        self.name, self.n_clusters, self.queries = info.provider, info.n_clusters, 0
        self.privacy = info.privacy
        self.proportions: NDArray[np.float64] | None = None
        self._client, self._batch = client, min(_BATCH, info.max_batch)
        self._most_bytes = info.max_request_bytes

    def ask(self, rows: Rows) -> Labels:
        """Label rows; see :class:`Subject`."""
        before = self.queries
        self.queries += len(rows)
        try:
            return np.concatenate([self._ask(part) for part in parts_of(rows, self._batch)])
        except OverBudgetError:
            raise RefusedError(
                f"the key's budget ended after {before:,} queries of the audit: raise it, or audit with "
                "`effort=QUICK`"
            ) from None

    def _ask(self, rows: Rows) -> Labels:
        """Label the rows by one request, or by several if they are too long for one."""
        body = _body(rows)
        if len(rows) > 1 and len(body.content) > self._most_bytes:
            return np.concatenate([self._ask(half) for half in np.array_split(rows, 2)])
        answer = self._client.ask(body, len(rows))
        if answer.unusable:
            reason = answer.unusable[0].reason
            raise RefusedError(f"the service cannot use a sample ({reason}): leave such samples out")
        return np.array(answer.labels, dtype=np.int64)


def parts_of(rows: Rows, size: int = _BATCH) -> list[Rows]:
    """Cut rows into parts of one size; the last may be smaller."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _body(rows: Rows) -> Body:
    """Write a request for vectors, or for images as files without loss."""
    if rows.ndim == 2:
        return body_of_rows(rows)
    files = []
    for row in rows:
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(row.transpose(1, 2, 0))).save(file, "PNG", compress_level=1)
        files.append(file.getvalue())
    return body_of_images(files)


@dataclass(frozen=True)
class Opened:
    """Samples for the attacks: members and others, in this order."""

    subject: Subject
    samples: tuple[Samples, Samples]
    images: bool
    features: tuple[FloatArray, FloatArray]  # under the attacker's encoder

    @property
    def spread(self) -> float:
        """Mean standard deviation of the features' entries, over the others."""
        return float(self.features[1].std(0).mean())


def open_subject(
    attacked: Path | LabelClient,
    both: tuple[Source, Source],
    encoder: EncoderOptions | None,
    most: int,
    seed: int,
    compute: Compute,
) -> Opened:
    """Open a model in this process or a service, with at most ``most`` members and others each.

    If no encoder of the attacker is given, the model's own is used; a service of images needs one.
    """
    subject: Subject
    if isinstance(attacked, Path):
        stored = load_model(attacked, role="source")
        images, attacker = stored.card.encoder.input_size is not None, stored.encoder
        if encoder is not None and images:
            attacker = encoder.find(compute)
        reader, subject = stored.encoder, ModelSubject(stored, compute)
    else:
        info = attacked.info()
        images = info.accepts == "images"
        if not images:
            assert info.width is not None
            attacker = IdentityEncoder(info.width, info.columns)
        elif encoder is None:
            raise InputError(
                "to audit a service of images, give the attacker an encoder: `backbone` and `weights`"
            )
        else:
            attacker = encoder.find(compute)
        reader, subject = attacker, ServiceSubject(attacked, info)
    # What only reads the samples computes nothing.
    opening = compute if attacker is reader else replace(compute, accelerator="auto", precision="32-true")
    seen = _open_both(both, reader, most, seed, opening)
    features = read_all(frozen_features(attacker, seen[0], compute, compute.reporter.show))
    others = read_all(frozen_features(attacker, seen[1], compute, compute.reporter.show))
    return Opened(subject, (seen[0].samples, seen[1].samples), images, (features, others))


def _open_both(
    both: tuple[Source, Source], encoder: Encoder, most: int, seed: int, compute: Compute
) -> tuple[Dataset, Dataset]:
    """Open a random choice of members and of others; others with the content of a member are left out."""
    opened = [open_for_prediction(one, encoder, "source", compute) for one in both]
    known, rng = set(opened[0].samples.keys), numpy_generator(seed, "audit", "samples")
    apart = np.array([key not in known for key in opened[1].samples.keys])
    if not apart.any():
        raise InputError("all other samples are members too: give samples that the model was not trained on")
    if not apart.all():
        compute.reporter.say(f"{(~apart).sum():,} of the other samples are members too, and are left out")
    usable = (np.arange(len(opened[0].samples)), np.flatnonzero(apart))
    chosen = [
        Dataset(subset(data.samples, np.sort(rng.permutation(index)[:most])), data.view)
        for data, index in zip(opened, usable, strict=True)
    ]
    return chosen[0], chosen[1]
