"""Tests of reading ahead."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import Tensor

from ucds.data.batches import DomainBalancedSampler
from ucds.errors import UserError
from ucds.math.arrays import IntArray
from ucds.training.reader import Reader

DOMAIN = np.repeat([0, 1], [7, 5])
IMAGES = torch.arange(12 * 3 * 4, dtype=torch.uint8).view(12, 3, 2, 2)


class Watched:
    """Samples that note which thread reads how many of them, and can be made to fail."""

    ids: tuple[str, ...] = ()
    domain = DOMAIN
    domain_names = ("a", "b")
    keys: tuple[bytes, ...] = ()
    fingerprint = ""

    def __init__(self, values: Tensor = IMAGES) -> None:
        self.values = values
        self.log: list[tuple[str, int]] = []
        self.broken = False

    def __len__(self) -> int:
        return len(self.values)

    def read(self, index: IntArray) -> Tensor:
        main = threading.current_thread() is threading.main_thread()
        self.log.append(("now" if main else "ahead", len(index)))
        if self.broken:
            raise UserError("the disk is gone")
        return self.values[torch.from_numpy(index)]


def sampler() -> DomainBalancedSampler:
    return DomainBalancedSampler(DOMAIN, 6, 3)


def reader(samples: Watched, total: int, share: slice = slice(None)) -> Reader:
    return Reader(samples, sampler(), share, total, pin=False)


@pytest.mark.parametrize("values", [IMAGES, IMAGES.flatten(1)])
@pytest.mark.parametrize("share", [slice(0, 6), slice(0, 3), slice(3, 6)])
def test_gives_the_samplers_batches_and_this_processs_rows(share: slice, values: Tensor) -> None:
    fresh = sampler()
    with reader(Watched(values), 9, share) as reading:
        for step in range(9):
            index, raw = reading.take(step)
            np.testing.assert_array_equal(index, fresh.batch(step))
            assert torch.equal(raw, values[torch.from_numpy(index[share])])


def test_may_start_anywhere_and_jump() -> None:
    fresh = sampler()
    with reader(Watched(), 20) as reading:
        for step in (5, 6, 2, 3, 19):
            np.testing.assert_array_equal(reading.take(step)[0], fresh.batch(step))


def test_images_are_read_one_step_ahead_and_never_past_the_end() -> None:
    samples = Watched()
    with reader(samples, 4) as reading:
        for step in range(4):
            reading.take(step)
        assert reading._ahead is not None
        assert reading._ahead[0] == 3
    assert samples.log == [("now", 6), ("ahead", 6), ("ahead", 6), ("ahead", 6)]


def test_vectors_are_read_when_they_are_wanted() -> None:
    samples = Watched(IMAGES.flatten(1))
    with reader(samples, 3) as reading:
        for step in range(3):
            reading.take(step)
    assert samples.log == [("now", 6)] * 3


def test_an_error_in_the_thread_is_raised_by_take() -> None:
    class LastFails(Watched):
        def read(self, index: IntArray) -> Tensor:
            self.broken = len(self.log) == 2
            return super().read(index)

    samples = LastFails()
    with reader(samples, 3) as reading:
        reading.take(0)
        reading.take(1)
        with pytest.raises(UserError, match="the disk is gone"):
            reading.take(2)
    assert samples.log[2] == ("ahead", 6)


def test_leaving_early_stops_the_thread() -> None:
    before = threading.active_count()

    def leave(reading: Reader) -> None:
        reading.take(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), reader(Watched(), 100) as reading:
        leave(reading)
    assert threading.active_count() == before
