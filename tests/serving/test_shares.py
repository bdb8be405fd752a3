"""Bounds, turns and prices by which one client leaves something for the others."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import ExitStack

import pytest

from ucds.serving.problems import Refusal
from ucds.serving.shares import Price, Rotation, Share, Turns


def test_a_share_is_bounded_for_all_and_for_each() -> None:
    share = Share(10, 6, "bytes")
    with ExitStack() as stack:
        anna = stack.enter_context(share.entry("anna"))
        anna(4)
        anna(2)
        with pytest.raises(Refusal, match="as one client may") as own:
            anna(1)
        with pytest.raises(Refusal, match="as one client may"):
            stack.enter_context(share.entry("anna"))(1)
        bert = stack.enter_context(share.entry("bert"))
        bert(4)
        with pytest.raises(Refusal, match="holds all the bytes") as all_of_it:
            bert(1)
        assert share.held == 10
    assert (own.value.kind, all_of_it.value.kind) == ("over-share", "busy")
    assert share.held == 0
    with share.entry("anna") as take:
        take(6)


def test_a_rotation_serves_owners_and_not_items() -> None:
    rotation: Rotation[int] = Rotation()
    for item in range(5):
        rotation.add("greedy", item)
    rotation.add("late", 9)
    served = []
    while turn := rotation.turn():
        served.append((turn[0], turn[1].popleft()))
    assert served[:3] == [("greedy", 0), ("late", 9), ("greedy", 1)]
    assert [item for owner, item in served if owner == "greedy"] == [0, 1, 2, 3, 4]
    rotation.add("a", 1)
    assert rotation.turn(lambda owner: owner != "a") is None


async def _in_turns(turns: Turns, log: list[str], owner: str) -> None:
    async with turns.turn(owner):
        log.append(owner)
        await asyncio.sleep(0.001)


def test_turns_go_round_and_one_owner_never_has_all_places() -> None:
    async def work() -> None:
        turns, log = Turns(3, 2), list[str]()
        async with asyncio.TaskGroup() as group:
            for owner in "aaaaaaaabb":
                group.create_task(_in_turns(turns, log, owner))
        assert sorted(log[:3]) == ["a", "a", "b"]
        assert log[:5].count("b") == 2
        assert log.count("a") == 8

    asyncio.run(work())


def test_who_gives_up_waiting_or_working_leaves_the_place() -> None:
    async def work() -> None:
        turns, log = Turns(1, 1), list[str]()
        async with turns.turn("a"):
            waiting = [asyncio.create_task(_in_turns(turns, log, owner)) for owner in "bcd"]
            await asyncio.sleep(0)
            waiting[1].cancel()
        # The place was just given to b, who does not know it yet.
        waiting[0].cancel()
        await asyncio.wait(waiting)
        assert log == ["d"]
        await asyncio.wait_for(_in_turns(turns, log, "e"), 1)

    asyncio.run(work())


class _Name(str):
    """An owner that tells whether anything of it is kept."""


def test_nothing_is_kept_of_an_owner_whose_turns_are_over() -> None:
    async def work() -> None:
        turns, log, owner = Turns(2, 1), list[str](), _Name("a")
        kept = weakref.ref(owner)
        await asyncio.gather(_in_turns(turns, log, owner), _in_turns(turns, log, owner))
        assert len(log) == 2
        del owner
        log.clear()
        assert kept() is None

    asyncio.run(work())


def test_a_price_slows_then_refuses_then_forgives() -> None:
    now = 0.0
    price = Price(10.0, clock=lambda: now)
    price.charge("h", 4.0)
    assert price.wait("h") == 0
    price.charge("h", 3.0)
    assert 0 < price.wait("h") < price.longest_wait
    assert price.wait("honest") == 0
    price.charge("h", 50.0)
    assert price.exhausted("h")
    with pytest.raises(Refusal, match="wait") as refused:
        price.wait("h")
    assert refused.value.kind == "over-waste"
    seconds = int(refused.value.headers["Retry-After"])
    assert seconds == 210  # from 40, the most, to 5 at 10 a minute
    now += seconds - 2
    with pytest.raises(Refusal):
        price.wait("h")
    now += 3
    assert price.wait("h") == 0
    assert not price.exhausted("h")


def test_honest_clients_may_send_some_bad_files() -> None:
    price = Price(10.0, clock=lambda: 0.0)
    for _ in range(200):
        price.charge("h", 0.003)
    assert price.wait("h") == 0


def test_the_memory_of_debts_is_bounded() -> None:
    price = Price(10.0, clock=lambda: 0.0)
    for number in range(5000):
        price.charge(f"10.0.{number // 256}.{number % 256}", 60.0)
    assert not price.owes("10.0.0.0")  # the oldest were forgotten
    assert not price.exhausted("10.0.0.0")
    assert price.wait("10.0.0.0") == 0
    assert price.exhausted("10.0.19.135")
