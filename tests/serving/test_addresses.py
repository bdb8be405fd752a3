"""What counts as one client where addresses are all that is known of it."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from serving_kit import NPY, FakeLabeller, npy, vector, wait_until

from ucds.serving.addresses import network_of
from ucds.serving.app import create_app
from ucds.serving.settings import Limits


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8:0:0:ffff::2", True),
        ("fe80::1%eth0", "fe80::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("testclient", "testclient", True),
        ("", "10.0.0.1", False),
    ],
)
def test_a_client_is_an_address_or_a_network_of_ipv6(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same


async def _ask(app: object, address: str) -> httpx.Response:
    transport = httpx.ASGITransport(app, client=(address, 1000))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.post("/v1/labels", content=npy([vector(3)]), headers=NPY)


def test_an_open_service_bounds_the_requests_of_one_ipv6_network() -> None:
    """The transport stands in for the network: a test has no second address of IPv6."""
    labeller = FakeLabeller()
    labeller.gate.clear()
    app = create_app(labeller, limits=Limits(client_share=0.01))  # one request in work for each client

    async def ask_together() -> list[int]:
        first = asyncio.create_task(_ask(app, "2001:db8::1"))
        await asyncio.to_thread(wait_until, lambda: app.state.answering.queue.held == 1)
        same = await _ask(app, "2001:db8::2")
        other = asyncio.create_task(_ask(app, "2001:db8:0:1::1"))
        await asyncio.to_thread(wait_until, lambda: app.state.answering.queue.held == 2)
        labeller.gate.set()
        return [(await first).status_code, same.status_code, (await other).status_code]

    try:
        assert asyncio.run(ask_together()) == [200, 429, 200]
    finally:
        labeller.gate.set()
        app.state.answering.close()
