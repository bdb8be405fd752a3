"""Limits of the service, and bounds and prices by which one key leaves something for the others."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import pytest

from ucds.errors import InputError
from ucds.serving.bounds import Share, Waste, cost_of_refusal
from ucds.serving.limits import Limits
from ucds.serving.problems import Refusal

ANNA, BERT = 1, 2


def test_a_share_is_bounded_for_all_and_for_each() -> None:
    share = Share(10, 6, "bytes")
    with ExitStack() as stack:
        stack.enter_context(share.taking(ANNA, 4))
        stack.enter_context(share.taking(ANNA, 2))
        with pytest.raises(Refusal, match="as one key may") as own:
            stack.enter_context(share.taking(ANNA, 1))
        stack.enter_context(share.taking(BERT, 2))
        with pytest.raises(Refusal, match="nearly all the bytes") as all_of_it:
            stack.enter_context(share.taking(BERT, 1))
        assert (share.held, share.held_by(ANNA), share.held_by(BERT)) == (8, 6, 2)
    assert (own.value.kind, all_of_it.value.kind) == ("over-share", "busy")
    assert (share.held, share.held_by(ANNA)) == (0, 0)
    with share.taking(ANNA, 6):
        assert share.held == 6


def test_several_keys_together_leave_room_for_the_next_one() -> None:
    share = Share(1024, 512, "samples")
    with ExitStack() as stack:
        for key in range(8):  # each takes all that it can
            with suppress(Refusal):
                while True:
                    stack.enter_context(share.taking(key, 1))
        assert share.held_by(0) == 512
        assert share.held_by(1) == 256
        with share.taking(99, 1):
            pass


def test_waste_slows_then_refuses_then_is_forgiven() -> None:
    now, told = 0.0, list[int]()
    waste = Waste(10.0, told.append, clock=lambda: now)
    waste.charge(ANNA, 4.0)
    assert waste.delay(ANNA) == 0
    waste.charge(ANNA, 3.0)
    assert 0 < waste.delay(ANNA) < 2
    assert waste.delay(BERT) == 0
    for _ in range(2):
        waste.charge(ANNA, 50.0)
    assert told == [ANNA]  # once
    with pytest.raises(Refusal, match="wait") as refused:
        waste.delay(ANNA)
    assert refused.value.kind == "over-waste"
    seconds = int(refused.value.headers["Retry-After"])
    assert seconds == 210  # from 40, the most, to 5 at 10 a minute
    now += seconds - 2
    with pytest.raises(Refusal):
        waste.delay(ANNA)
    now += 3
    assert waste.delay(ANNA) == 0
    now += 3600
    assert waste.debt(ANNA) == 0
    for _ in range(200):  # bad files of an honest client
        waste.charge(ANNA, 0.003 + cost_of_refusal(30_000))
    assert waste.delay(ANNA) == 0


def test_limits_are_set_by_name_and_have_the_type_of_the_default() -> None:
    found = Limits.parse(["max-batch=64", "decode-seconds=2.5", "formats=jpeg,PPM", "client_share=1"])
    assert (found.max_batch, found.decode_seconds, found.formats) == (64, 2.5, ("JPEG", "PPM"))
    assert found.client_share == 1.0
    assert Limits.parse([]) == Limits()
    quarter = Limits(client_share=0.25)
    assert (quarter.for_one(128), quarter.for_one(1024, least=512), quarter.for_one(2)) == (32, 512, 1)


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
