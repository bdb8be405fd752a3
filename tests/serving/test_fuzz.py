"""Requests made from the service's own description of itself, right ones and wrong ones."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest
from serving_kit import FakeImageLabeller, FakeLabeller, Service, files, npy, picture, running, vector

from ucds.serving.ledger import Ledger
from ucds.serving.settings import Limits

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")


@schemathesis.serializer("application/x-npy")  # type: ignore[untyped-decorator]
def npy_as_it_is(context: Any, value: Any) -> bytes:
    """The bytes that were made up, whatever they are."""
    return value if isinstance(value, bytes) else str(value).encode()


def fuzz(service: Service, count: int) -> Counter[int]:
    """So many requests to each operation; statuses of the answers."""
    from hypothesis import HealthCheck, Phase, given, settings

    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    schema.config.generation.update(modes=list(schemathesis.GenerationMode))
    statuses: Counter[int] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: Any) -> None:
            answer = case.call(headers={"Authorization": f"Bearer {service.key}"})
            statuses[answer.status_code] += 1
            assert answer.status_code < 500, answer.text

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ask()
    return statuses


@pytest.mark.parametrize(
    "count", [pytest.param(20, id="some"), pytest.param(1000, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("accepts", ["images", "embeddings"])
@pytest.mark.timeout(900)
def test_no_request_from_the_description_breaks_the_service(ledger: Ledger, accepts: str, count: int) -> None:
    labeller = FakeImageLabeller() if accepts == "images" else FakeLabeller()
    key = ledger.add_key("fuzz", 10**6)
    with running(labeller, ledger, Limits(max_batch=20, body_seconds=5)) as service:
        service.key = key
        statuses = fuzz(service, count)
        with service.client() as client:
            if accepts == "images":
                answer = client.post("/v1/labels", files=files(picture(6)))
            else:
                answer = client.post(
                    "/v1/labels", content=npy([vector(6)]), headers={"Content-Type": "application/x-npy"}
                )
    assert answer.json()["labels"] == [6]
    assert max(statuses) < 500
    assert ledger.verify().faults == ()
