"""Addresses that users give: those to which no request can be sent are found before anything is asked."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx


def is_http_url(url: str) -> bool:
    """Return whether requests can be sent to an address: an http or https URL of a valid host and port."""
    try:
        parts, parsed = urlsplit(url), httpx.URL(url)
        # Only looked at, because each finds a fault that nothing else finds before the first request: a port
        # beyond 65535, an international name of a wrong form, and a part of a name that is empty or too long.
        _ = parts.port, parsed.host, parsed.raw_host.decode("ascii").encode("idna")
    except (ValueError, httpx.InvalidURL):
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
