"""Wrong keys earn delays, of an address and for a time."""

from __future__ import annotations

import asyncio

from ucds.serving.failures import FailureBrake


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_delays_grow_to_a_bound_and_are_forgotten() -> None:
    clock = Clock()
    brake = FailureBrake(2.0, clock)
    assert [brake.count("10.0.0.1") for _ in range(9)] == [0, 0, 0, 0.125, 0.25, 0.5, 1.0, 2.0, 2.0]
    assert brake.count("10.0.0.2") == 0
    clock.now = 61.0
    assert brake.count("10.0.0.1") == 0


def test_a_network_of_ipv6_is_one_address_and_the_memory_is_bounded() -> None:
    brake = FailureBrake(2.0, Clock())
    assert [brake.count(f"2001:db8::{i}") for i in range(4)] == [0, 0, 0, 0.125]
    assert brake.count("2001:db8:1::1") == 0
    for number in range(5000):
        brake.count(f"10.1.{number // 256}.{number % 256}")
    assert brake.count("2001:db8::1") == 0  # the oldest were forgotten


def test_too_many_that_wait_are_turned_away_at_once() -> None:
    async def show_wrong_keys() -> list[bool]:
        brake = FailureBrake(0.2)
        for _ in range(5):
            brake.count("a")
        return await asyncio.gather(*(brake.wait("a") for _ in range(70)))

    answers = asyncio.run(show_wrong_keys())
    assert (answers.count(True), answers.count(False)) == (64, 6)
