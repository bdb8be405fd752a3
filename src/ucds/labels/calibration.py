"""Calibrates a key: samples are sent once, and the service subtracts their mean from all of the key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ucds.data.content import content_key
from ucds.data.decode import UnusableImageError
from ucds.errors import InputError, RefusedError
from ucds.labels.client import LabelClient
from ucds.labels.questions import MOST_OVERHEAD, Questions, check_size
from ucds.labels.wire import Calibration, ServiceInfo

_SEED = 0  # the same samples again when a query is repeated


def digest_of_contents(keys: Iterable[bytes]) -> str:
    """Compute a digest of the content keys of some samples; their order and copies make no difference."""
    return hashlib.sha256(b"".join(sorted(set(keys)))).hexdigest()[:32]


def settle_calibration(
    client: LabelClient, questions: Questions, info: ServiceInfo, say: Callable[[str], object]
) -> ServiceInfo:
    """Calibrate the key of a client, if the client wants that and it was not done before."""
    fewest, n = info.fewest_to_calibrate, len(questions.ids)
    if info.calibration is not None:
        say(f"the key was calibrated with {info.calibration.samples:,} samples")
    elif fewest is None:
        if client.calibrate_key:
            say(f"model {info.model!r} sees all samples alike, so the key is not calibrated")
    elif client.calibrate_key:
        found = _calibrate(client, questions, info, fewest)
        say(f"the key is calibrated with {found.samples:,} of your samples")
        return info.model_copy(update={"calibration": found})
    elif n >= fewest and info.budget.used == 0:
        say("if these samples are of one kind, --calibrate may improve their labels (see docs/serving.md)")
    return info


def _calibrate(client: LabelClient, questions: Questions, info: ServiceInfo, fewest: int) -> Calibration:
    contents = list(_draw(questions, info))
    if len(contents) < fewest:
        raise InputError(
            f"a calibration needs {fewest} different samples, but only {len(contents)} can be used: ask "
            "without --calibrate"
        )
    answer = client.calibrate(questions.body(contents), len(contents))
    left_out = {sample.position for sample in answer.unusable}
    used = [content_key(content) for position, content in enumerate(contents) if position not in left_out]
    if answer.calibration.digest != digest_of_contents(used):
        raise RefusedError(f"{client.url} calibrated the key with other samples than these")
    return answer.calibration


def _draw(questions: Questions, info: ServiceInfo) -> Iterator[bytes]:
    """Read different samples in a random order, until a request is full."""
    room, seen = info.max_request_bytes - MOST_OVERHEAD, set[bytes]()
    for position in np.random.default_rng(_SEED).permutation(len(questions.ids)).tolist():
        try:
            content = questions.read(position)
            check_size(content, questions.ids[position], info)
        except UnusableImageError:
            continue
        if content in seen:
            continue
        room -= len(content) + MOST_OVERHEAD
        if room < 0 or len(seen) == info.max_batch:
            return
        seen.add(content)
        yield content
