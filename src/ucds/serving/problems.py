"""Refusals: each refused request gets a problem document (RFC 9457) with one clear sentence."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ucds.labels.wire import PROBLEM_TYPE, Problem

TITLES = {
    "bad-request": (400, "The request is not valid HTTP"),
    "no-key": (401, "A key is needed"),
    "unknown-key": (401, "The key is unknown"),
    "revoked-key": (403, "The key is revoked"),
    "expired-key": (403, "The key has expired"),
    "not-for-you": (403, "The key is bound to another network"),
    "not-the-proxy": (403, "Only the proxy is answered"),
    "not-found": (404, "Nothing is here"),
    "wrong-method": (405, "The method is not allowed here"),
    "not-calibrated": (409, "The key cannot be calibrated"),
    "no-length": (411, "The request does not say its length"),
    "too-slow": (408, "The request came too slowly"),
    "too-large": (413, "The request is too large"),
    "wrong-type": (415, "The media type is not accepted"),
    "malformed": (422, "The request cannot be read"),
    "over-budget": (429, "The budget is used up"),
    "over-rate": (429, "Too many requests"),
    "over-share": (429, "Too many requests at a time"),
    "over-waste": (429, "Too much work was wasted"),
    "fault": (500, "The service failed"),
    "busy": (503, "The service is busy"),
    "stopping": (503, "The service is stopping"),
    "ledger-away": (503, "The ledger cannot be used"),
}
TYPE_PREFIX = "urn:ucds:problem:"


class Refusal(Exception):  # noqa: N818  (the service answers with it; the service has no fault)
    """A request is refused. The error has a kind from `TITLES`, and a sentence: what is wrong, what to do."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.key = kind, detail, key
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)
        if TITLES[kind][0] == 401:
            self.headers["WWW-Authenticate"] = "Bearer"

    def response(self) -> Response:
        """Return the refusal as an HTTP answer."""
        status, title = TITLES[self.kind]
        problem = Problem(type=TYPE_PREFIX + self.kind, title=title, status=status, detail=self.detail)
        content = problem.model_dump_json()
        return Response(content, status_code=status, media_type=PROBLEM_TYPE, headers=self.headers)


def stopping() -> Refusal:
    """Return the refusal of a request that the stopping service cannot wait for."""
    return Refusal("stopping", "The service is stopping; try again later.", retry_after=5)


async def _answer(request: Request, error: Exception) -> Response:
    if isinstance(error, Refusal):
        return error.response()
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return Refusal("not-found", "There is nothing at this path; see /openapi.json.").response()
    if error.status_code == 405:
        detail = f"{request.method} is not a method of this path."
        return Refusal("wrong-method", detail, headers=error.headers).response()
    return Refusal("bad-request", "The request cannot be answered.", headers=error.headers).response()


HANDLERS: dict[Any, Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    Refusal: _answer,
    HTTPException: _answer,
}
"""Handlers by which an application answers every refusal with a problem document."""


def problem_schemas(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that an operation may answer with, for its OpenAPI description."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    titles = {status: [title for number, title in TITLES.values() if number == status] for status in statuses}
    return {status: {"description": "; ".join(titles[status]), "content": content} for status in statuses}
