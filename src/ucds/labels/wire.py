"""Messages between provider and client over HTTP, version 1: closed schemas that both sides check.

Every model is closed (an unknown field is refused) and strict (a float is no label). So the provider cannot
send anything else by mistake, and the client would refuse it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from ucds.choices import MOST_CLUSTERS
from ucds.errors import InputError, first_problem
from ucds.math.privacy import Guarantee

LABELS_PATH = "/v1/labels"
INFO_PATH = "/v1/info"
CALIBRATION_PATH = "/v1/calibration"

IMAGES_FIELD = "images"  # the name of every file part of a multipart request
NPY_TYPE = "application/x-npy"
PROBLEM_TYPE = "application/problem+json"

_PRIME = 2**255 - 19
_CURVE = -121665 * pow(121666, -1, _PRIME)  # d of Ed25519: -x^2 + y^2 = 1 + d x^2 y^2


def _refuse_small_order(key: str) -> str:
    """Refuse a public key of order up to 8: anybody could sign for it without a private key."""
    y = int.from_bytes(bytes.fromhex(key), "little") % 2**255
    # Orders 1 and 2: y is 1 or -1; order 4: y is 0; order 8: the doubled point has y = 0.
    if y * (y * y - 1) * (_CURVE * y**4 + 2 * y * y - 1) % _PRIME == 0:
        raise ValueError("a key of small order proves nothing")
    return key


Count = Annotated[int, Field(ge=0, lt=2**53)]
Positive = Annotated[int, Field(ge=1, lt=2**53)]
Clusters = Annotated[int, Field(ge=1, le=MOST_CLUSTERS)]
ContentKey = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
ModelDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PublicKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), AfterValidator(_refuse_small_order)]
Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
Time = Annotated[str, Field(pattern=r"^[0-9T:.+-]{29}$")]
Accepts = Literal["images", "embeddings"]


class Message(BaseModel):
    """Base of all messages: unknown fields are refused, and no value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Balance(Message):
    """Budget of a key, and how much of it is left."""

    budget: Count  # distinct samples that the key may have labelled
    used: Count  # distinct samples labelled so far, those of this answer included
    remaining: Count  # distinct samples left of the budget


class Signed(Message):
    """A statement with an Ed25519 signature; key and signature are in hexadecimal digits."""

    signer: PublicKey
    signature: Signature  # of `signed_bytes`

    def signed_bytes(self) -> bytes:
        """Return what is signed: all other fields as JSON, sorted by name, in ASCII, without blanks."""
        fields = self.model_dump(exclude={"signature"})
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


class Receipt(Signed):
    """The provider's signed statement about one answer, which the client keeps.

    The ledger's log is a chain of hashes: the hash of an entry covers every entry before it. So a ledger that
    holds the entry that a receipt names still holds everything from before that answer. A receipt reveals
    nothing about other clients.
    """

    format: Literal["ucds-receipt/1"] = "ucds-receipt/1"
    entries: Annotated[list[Digest], Field(min_length=1)]  # hashes of those that charged the answers, sorted
    time: Time  # of the answer, ISO 8601 in UTC
    model_digest: ModelDigest  # of the weights of the model that answered
    answers_digest: Digest  # of contents and labels; see `answers_digest`
    era: Count = 0  # of the log: how often the provider accepted a loss, or a clock
    privacy: Guarantee | None = None  # of the model; see `ucds.math.privacy`


class UnusableSample(Message):
    """A sample that cannot be used."""

    position: Count  # in the request, from 0
    reason: str  # a few words


class LabelAnswer(Message):
    """The answer to ``POST /v1/labels``: one integer per sample, in the order of the request.

    A label is one of the provider's K clusters, in ``[0, n_clusters)``. A sample that cannot be used gets no
    label, and is not charged. Labels come with a receipt; an answer without labels has none.
    """

    labels: list[Count | None]
    unusable: list[UnusableSample]  # samples without a label, by position
    n_clusters: Clusters
    provider: str  # name of the model that answered
    model_digest: ModelDigest  # of the model's weights
    balance: Balance  # of the key that asked
    receipt: Receipt | None

    @model_validator(mode="after")
    def _consistent(self) -> LabelAnswer:
        if any(label is not None and label >= self.n_clusters for label in self.labels):
            raise ValueError(f"a label is not below n_clusters = {self.n_clusters}")
        without = [position for position, label in enumerate(self.labels) if label is None]
        if [sample.position for sample in self.unusable] != without:
            raise ValueError("the samples without a label are not those that are called unusable")
        if (self.receipt is None) != (len(without) == len(self.labels)):
            raise ValueError("labels need a receipt, and an answer without labels has none")
        return self


class Calibration(Message):
    """The mean that is subtracted from the samples of a key."""

    samples: Positive  # distinct samples that it is the mean of
    digest: ModelDigest  # of their contents; see `digest_of_contents`


class CalibrationAnswer(Message):
    """The answer to ``POST /v1/calibration``: the calibration that the key has from now on."""

    calibration: Calibration
    unusable: list[UnusableSample]  # samples that are no part of it because they cannot be used


class ServiceInfo(Message):
    """The answer to ``GET /v1/info``: what a client must know to ask correctly."""

    provider: str  # name of the model that answers
    model_digest: ModelDigest  # of the model's weights
    n_clusters: Clusters  # of the provider, K
    accepts: Accepts  # image files, or rows of an ``.npy`` array
    width: Positive | None  # of one embedding; ``None`` for images
    columns: tuple[str, ...] | None = None  # of the model's table, in its order, if they have names
    max_batch: Positive  # samples in one request
    max_image_bytes: Positive  # of one image file
    max_image_pixels: Positive  # of one image
    max_request_bytes: Positive  # of one request body
    signer: PublicKey  # of the receipts
    balance: Balance  # of the key that asks
    privacy: Guarantee | None = None  # that the model carries, as in :class:`Receipt`
    fewest_to_calibrate: Positive | None = None  # samples; ``None`` if the model sees all samples alike
    calibration: Calibration | None = None  # of the key that asks


class Problem(Message):
    """Why a request was refused (RFC 9457), as ``application/problem+json``."""

    type: str  # ``urn:ucds:problem:`` and a short name that does not change
    title: str  # kind of the problem in a few words
    status: Annotated[int, Field(ge=400, le=599)]  # of the HTTP answer
    detail: str  # one sentence that says what is wrong and what to do


def read_signers(texts: Iterable[str]) -> tuple[str, ...]:
    """Read public keys that users wrote in hexadecimal digits; refuse what cannot be a key."""
    keys = tuple(map(str.lower, texts))
    try:
        return TypeAdapter(tuple[PublicKey, ...]).validate_python(keys)
    except ValidationError as error:
        raise InputError(
            f"`signer` is a public key of 64 hexadecimal digits ({first_problem(error)})"
        ) from None


def digest_of_contents(keys: Iterable[bytes]) -> str:
    """Compute a digest of the content keys of some samples; their order and copies make no difference."""
    return hashlib.sha256(b"".join(sorted(set(keys)))).hexdigest()[:32]


def answers_digest(answers: Iterable[tuple[bytes, int]]) -> str:
    """Compute the SHA-256 of the answers to one request, whatever their order.

    It covers, in the order of the content keys, each key (16 bytes) and its label (8 bytes, big-endian).
    """
    digest = hashlib.sha256()
    for content, label in sorted(answers):
        digest.update(content + label.to_bytes(8, "big", signed=True))
    return digest.hexdigest()


def is_authentic(statement: Signed) -> bool:
    """Return whether a statement was signed with the key that it names."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(statement.signer))
    try:
        key.verify(bytes.fromhex(statement.signature), statement.signed_bytes())
    except InvalidSignature:
        return False
    return True


def find_fault(
    receipt: Receipt, labels: Mapping[bytes, int], *, signer: str, model_digest: str
) -> str | None:
    """Return why a receipt does not fit these answers of the provider; ``None`` if it fits."""
    if receipt.signer != signer:
        return "a receipt is signed with a key other than the one that the service named"
    if not is_authentic(receipt):
        return "the signature of a receipt is wrong"
    if receipt.model_digest != model_digest:
        return "a receipt is for another model"
    if receipt.answers_digest != answers_digest(labels.items()):
        return "a receipt is for other answers"
    return None
