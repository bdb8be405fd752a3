"""Tests of the addresses to which requests can be sent."""

from __future__ import annotations

import pytest

from ucds.labels.urls import is_http_url


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "HTTPS://labels.example.org:8443/path",
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "http://[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]",
        "https://name:secret@example.org/bucket",
        "https://b\xfccher.example",
        "https://xn--bcher-kva.example",
        "https://example.org.",
    ],
)
def test_hosts_of_every_form_are_taken(url: str) -> None:
    assert is_http_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org",
        "https://",
        "https://:8000",
        "http://[bad",
        "http://[::1]x",
        "https://[v1.a]",
        "https://localhost:abc",
        "https://localhost:65536",
        "https://a..b",
        f"https://{64 * 'a'}.example",
        "https://xn--zz.example",
        "https://a.example/\n",
    ],
)
def test_what_no_request_can_be_sent_to_is_not_taken(url: str) -> None:
    assert not is_http_url(url)
