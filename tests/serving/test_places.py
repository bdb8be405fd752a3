"""Which connection makes room for another, and in which order."""

from __future__ import annotations

import numpy as np

from ucds.serving.places import Places


def test_there_is_room_until_an_address_or_all_have_too_many() -> None:
    places = Places[str](total=4, each=2)
    assert places.enter("a1", "a") is None
    assert places.enter("a2", "a") is None
    assert places.enter("a3", "a") == "a1"  # too many of the address
    assert places.enter("b1", "b") is None
    assert places.enter("c1", "c") is None
    assert places.enter("d1", "d") == "a2"  # too many in all: of the address with the most
    places.leave("a2")  # its connection is lost after it was closed for another
    assert places.enter("a4", "a") == "a3"


def test_the_one_that_is_idle_for_longest_is_closed_and_none_in_work() -> None:
    places = Places[str](total=9, each=3)
    for name in ("1", "2", "3"):
        places.enter(name, "a")
    places.work("1")
    places.work("2")
    places.rest("1")
    assert places.enter("4", "a") == "3"
    assert places.enter("5", "a") == "1"
    places.work("4")
    places.work("5")
    assert places.enter("6", "a") == "6"  # all others work
    places.rest("6")  # it is closed: nothing of it is kept
    places.rest("2")
    assert places.enter("7", "a") == "2"


def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    places = Places[int](total=9, each=2)
    closed = [places.enter(number, f"2001:db8:0:1::{number + 1:x}") for number in range(4)]
    assert closed == [None, None, 0, 1]
    assert places.enter(9, "2001:db8:0:2::1") is None


def test_among_clients_with_equally_many_the_longest_idle_makes_room() -> None:
    places = Places[str](total=3, each=2)
    for name in ("used", "silent", "late"):
        places.enter(name, name)
    places.work("used")
    places.rest("used")  # it has just got an answer
    assert places.enter("new", "new") == "silent"
    assert places.enter("newer", "newer") == "late"


def test_where_all_connections_of_the_largest_client_work_another_makes_room() -> None:
    places = Places[str](total=3, each=2)
    for name in ("a1", "a2", "b1"):
        places.enter(name, name[0])
    places.work("a1")
    places.work("a2")
    assert places.enter("c1", "c") == "b1"


def test_bounds_hold_whatever_is_done_in_whatever_order() -> None:
    rng, places = np.random.default_rng(0), Places[int](total=20, each=8)
    held: dict[int, str] = {}
    working: set[int] = set()
    for number in range(5000):
        address = "abcde"[rng.integers(5)]
        held[number] = address
        closed = places.enter(number, address)
        assert closed not in working
        if closed is not None:
            del held[closed]
        counts = [list(held.values()).count(letter) for letter in "abcde"]
        assert max(counts) <= 8
        assert len(held) <= 20
        for other in rng.choice(list(held), 2):
            match rng.integers(4):
                case 0:
                    places.work(other)
                    working.add(other)
                case 1:
                    places.leave(other)
                    held.pop(other, None)
                    working.discard(other)
                case _:
                    places.rest(other)
                    working.discard(other)
