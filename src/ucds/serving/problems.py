"""Refusals: every answer that is no answer is a problem document (RFC 9457) with one clear sentence."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from ucds.labels.wire import PROBLEM_TYPE, InvalidSample, Problem

logger = logging.getLogger("ucds.serving")

TITLES = {
    "bad-request": (400, "The request is not valid HTTP"),
    "no-key": (401, "A key is needed"),
    "unknown-key": (401, "The key is unknown"),
    "revoked-key": (403, "The key is revoked"),
    "not-for-you": (403, "Not for this address"),
    "not-found": (404, "Nothing is here"),
    "wrong-method": (405, "The method is not allowed here"),
    "too-slow": (408, "The request came too slowly"),
    "too-large": (413, "The request is too large"),
    "wrong-type": (415, "The media type is not accepted"),
    "malformed": (422, "The request cannot be read"),
    "unusable-samples": (422, "Some samples cannot be used"),
    "over-budget": (429, "The budget is used up"),
    "over-rate": (429, "Too many requests"),
    "fault": (500, "The service failed"),
    "busy": (503, "The service is busy"),
    "stopping": (503, "The service is stopping"),
    "ledger-away": (503, "The ledger cannot be reached"),
}
TYPE_PREFIX = "urn:ucds:problem:"


class Refusal(Exception):  # noqa: N818  (it is what the service answers, not a fault of it)
    """A request that is not answered.

    Args:
        kind: a key of `TITLES`.
        detail: one sentence that says what is wrong and what to do.
        retry_after: seconds after which the same request may succeed, where time helps.
        invalid: the samples that cannot be used.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        retry_after: int | None = None,
        invalid: Sequence[InvalidSample] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.retry_after = kind, detail, retry_after
        self.invalid = list(invalid) if invalid is not None else None

    def response(self) -> Response:
        """The refusal as HTTP."""
        headers = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        if self.kind in ("no-key", "unknown-key"):
            headers["WWW-Authenticate"] = "Bearer"
        return problem_response(self.kind, self.detail, headers=headers, invalid=self.invalid)


def problem_response(
    kind: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    invalid: list[InvalidSample] | None = None,
) -> Response:
    """A problem document of the given kind."""
    status, title = TITLES[kind]
    problem = Problem(type=TYPE_PREFIX + kind, title=title, status=status, detail=detail, invalid=invalid)
    content = json.dumps(problem.to_json()).encode()
    return Response(content, status_code=status, media_type=PROBLEM_TYPE, headers=dict(headers or {}))


def install_handlers(app: FastAPI) -> None:
    """Make an application answer every error as a problem document."""
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _fault)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return problem_response("not-found", "There is nothing at this path; see /openapi.json.")
    if error.status_code == 405:
        detail = f"{request.method} is not a method of this path."
        return problem_response("wrong-method", detail, headers=error.headers)
    return problem_response("bad-request", "The request cannot be served.", headers=error.headers)


async def _fault(request: Request, error: Exception) -> Response:
    # The trace stays here: it could say something of the model or of another client.
    logger.error("fault while answering %s", request.url.path, exc_info=error)
    return problem_response("fault", "The service failed on this request; nothing was charged for it.")


def problem_schemas(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems an operation may answer with, for its OpenAPI description."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    described: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        titles = [title for number, title in TITLES.values() if number == status]
        described[status] = {"description": "; ".join(titles), "content": content}
    return described
