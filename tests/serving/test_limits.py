"""Limits by name and value, and those under which nothing could be answered."""

from __future__ import annotations

import pytest

from ucds.errors import InputError
from ucds.serving.limits import Limits


def test_limits_are_set_by_name_and_have_the_type_of_the_default() -> None:
    found = Limits.parse(["max-batch=64", "decode-seconds=2.5", "formats=jpeg,PPM", "client_share=1"])
    assert (found.max_batch, found.decode_seconds, found.formats) == (64, 2.5, ("JPEG", "PPM"))
    assert found.client_share == 1.0
    assert Limits.parse([]) == Limits()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("max-bach=3", "no limit 'max-bach': the limits are max-batch, max-image-bytes"),
        ("max-batch", "write max-batch=256"),
        ("max-batch=many", "write max-batch=256"),
        ("max-batch=0", "max_batch must be positive"),
        ("decode-workers=-1", "decode_workers must be positive"),
        ("body-seconds=nan", "body_seconds must be positive"),
        ("shutdown-seconds=inf", "shutdown_seconds must be positive and below"),
        ("formats=SVG", "images can be of the formats .* not SVG"),
        ("max-queue=100", "max_queue 100 has no room for a request of 256"),
        ("max-body-bytes=1000", "max_body_bytes must be at least max_request_bytes"),
        ("client-share=1.5", "client_share is at most 1"),
    ],
)
def test_what_sets_no_limit_or_answers_no_request_is_refused(setting: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Limits.parse([setting])


def test_one_key_may_hold_a_share_and_always_one_request() -> None:
    limits = Limits(client_share=0.25)
    assert (limits.for_one(128), limits.for_one(1024, least=512), limits.for_one(2)) == (32, 512, 1)
