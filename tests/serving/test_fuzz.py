"""Requests made from the service's own description of itself, right ones and wrong ones, with every check."""

import warnings
from collections import Counter
from email.parser import BytesParser
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from serving_kit import NPY, WIDTH, FakeImageLabeller, FakeLabeller, FakeMeanLabeller, npy, picture, running

from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.verify import verify

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

# What no description can say: which bytes are an image, or an array of the right width.
_forms = st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])
_rows = st.lists(st.floats(-100, 100, width=32), min_size=WIDTH, max_size=WIDTH)
schemathesis.openapi.format("binary", st.builds(picture, st.integers(0, 12), _forms))
schemathesis.openapi.media_type("application/x-npy", st.lists(_rows, min_size=1, max_size=5).map(npy))


@schemathesis.serializer("application/x-npy")  # type: ignore[untyped-decorator]
def npy_as_it_is(context: Any, value: Any) -> bytes:
    """The bytes that were made up, whatever they are."""
    return value if isinstance(value, bytes) else str(value).encode()


def damage(case: Any, body: bytes) -> Any:
    """The request with another body, which is no array: of a binary body nothing wrong is made up."""
    case.body, case.meta.generation.mode = body, schemathesis.GenerationMode.NEGATIVE
    return case


def holds_images(request: Any) -> bool:
    """Whether a request is a form of nothing but images, read by Python's own parser.

    Some requests that are meant to be wrong arrive as right ones.
    """
    head = f"Content-Type: {request.headers.get('Content-Type', '')}\r\n\r\n".encode()
    form = BytesParser().parsebytes(head + request.body) if isinstance(request.body, bytes) else None
    parts = form.get_payload() if form is not None and form.is_multipart() else []
    names = [part.get_param("name", header="Content-Disposition") for part in parts]
    return set(names) == {"images"} and all(part.get_filename() for part in parts)


def fuzz(url: str, key: str, count: int) -> Counter[int]:
    """Up to so many requests to each operation, every answer checked; statuses of the answers."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    rejection = schema.config.checks.negative_data_rejection
    rejection.expected_statuses = [*rejection.expected_statuses, "413"]  # more samples than a request holds
    headers = {"Authorization": f"Bearer {key}"}
    statuses: Counter[int] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()
        kinds = [operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode]
        if any(body.media_type == NPY["Content-Type"] for body in operation.body):
            kinds.append(st.builds(damage, operation.as_strategy(), st.binary(min_size=1)))

        @given(case=st.one_of(kinds))
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: Any) -> None:
            answer = case.call(headers=headers, timeout=120)
            statuses[answer.status_code] += 1
            if answer.status_code == 200 and holds_images(answer.request):  # nothing wrong arrived
                case.meta.generation.mode = schemathesis.GenerationMode.POSITIVE
            case.validate_response(answer, headers=headers)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ask()
    return statuses


@pytest.mark.parametrize(
    "count", [pytest.param(10, id="some"), pytest.param(1500, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("kind", "most"), [(FakeImageLabeller, 5), (FakeMeanLabeller, 32)])
@pytest.mark.timeout(1800)
def test_every_answer_is_as_described(
    ledger: Ledger, kind: type[FakeLabeller], most: int, count: int
) -> None:
    key, limits = ledger.add_key("fuzz", 10**6), Limits(max_batch=most, max_queue=64, waste_seconds=1e6)
    with running(kind(), ledger, limits) as service:
        statuses = fuzz(service.url, key, count)
    print("answers by status:", dict(statuses))  # shown with -rP
    assert statuses[200] > 0
    assert (statuses[409] > 0) == (kind is FakeMeanLabeller)  # too few samples: five at most are made up
    assert statuses.total() >= 2 * count
    if count >= 500:
        assert statuses[422] > 0 or statuses[415] > 0
    assert verify(ledger.place).faults == ()
