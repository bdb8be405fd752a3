"""The page of a review: a person answers in a browser, and no other page or program can.

One command serves the page for all tests but those that kill it; each test takes back what it answers.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from serving_kit import wait_until

import ucds

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@contextmanager
def reviewing(run: Path, *options: str, opens: bool = False) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the command in a process of its own; yield the address of the page, and the process."""
    command = [sys.executable, "-m", "ucds", "review", str(run), *options]
    command += [] if opens else ["--no-open"]
    process = subprocess.Popen(command, env=dict(os.environ), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/\S+/", line):
                yield found[0], process
                break
        else:
            raise AssertionError("the command has said no address")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def served(trained: Path) -> Iterator[str]:
    """The address of a page of the run."""
    with reviewing(trained) as (address, _):
        yield address


@pytest.fixture
def address(served: str) -> Iterator[str]:
    """The address of the page; what a test answers is taken back."""
    yield served
    while (state := httpx.get(f"{served}state").json())["answered"]:
        tell(served, state["number"], "undo")


def records(run: Path) -> list[dict[str, Any]]:
    path = run / "answers.jsonl"
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    return [json.loads(line) for line in lines]


def tell(address: str, number: int, action: str, **values: Any) -> httpx.Response:
    return httpx.post(f"{address}tell", json={"number": number, "action": action, **values})


def answer_mixed(address: str) -> int:
    """Answer one question; return the number of records that were known before."""
    number: int = httpx.get(f"{address}state").json()["number"]
    assert tell(address, number, "answer", answer="mixed").status_code == 200
    return number


def test_answers_are_kept_at_once_and_taken_back(trained: Path, address: str) -> None:
    known = answer_mixed(address)
    assert [record["did"] for record in records(trained)[known:]] == ["mixed"]
    assert tell(address, known + 1, "undo").json()["answered"] == 0


def test_a_second_window_does_not_answer_what_it_has_not_seen(trained: Path, address: str) -> None:
    known = answer_mixed(address)
    assert tell(address, known, "answer", answer="mixed").status_code == 409
    assert len(records(trained)) == known + 1


@pytest.mark.parametrize(
    "headers", [{"Host": "stranger.example"}, {"Origin": "https://stranger.example"}, {"Origin": "null"}]
)
def test_other_hosts_and_origins_get_nothing(trained: Path, address: str, headers: dict[str, str]) -> None:
    before = records(trained)
    assert httpx.get(f"{address}state", headers=headers).status_code == 404
    body = {"number": len(before), "action": "answer", "answer": "mixed"}
    assert httpx.post(f"{address}tell", json=body, headers=headers).status_code == 404
    assert records(trained) == before


def test_another_token_gets_nothing(address: str) -> None:
    origin = address.rsplit("/", 2)[0]
    wrong = [f"/wrong/{path}" for path in ("", "fixed", "state", "page.js", "picture/0")]
    for path in ("/", "/state", *wrong):
        assert httpx.get(origin + path).status_code == 404
    assert httpx.get(f"{address}%2e%2e/command.py").status_code == 404


@pytest.mark.parametrize("body", [b"", b"[]", b'{"action": "answer"}', b'{"action": "x", "number": 0}'])
def test_bad_requests_are_refused_in_words(trained: Path, address: str, body: bytes) -> None:
    before = records(trained)
    refused = httpx.post(f"{address}tell", content=body.replace(b": 0", b": %d" % len(before)))
    assert refused.status_code == 400
    assert refused.json()["error"]
    assert httpx.get(f"{address}picture/1000").status_code == 400
    assert records(trained) == before


def test_a_second_review_is_refused_with_the_address_of_the_first(trained: Path, address: str) -> None:
    with pytest.raises(ucds.InputError, match=f"is open already: {re.escape(address)}"):
        ucds.review(trained, open_browser=False)


def test_the_address_reaches_the_browser_by_a_private_file(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".review", ".review.html"):
        (run / name).touch()
        (run / name).chmod(0o644)
    browser, told = tmp_path / "browser", tmp_path / "told"
    browser.write_text(f"#!/bin/sh\necho $* > {told}.new; mv {told}.new {told}\n")
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with reviewing(run, opens=True) as (address, _):
        wait_until(told.exists)
        (page,) = told.read_text().split()
        assert page == (run / ".review.html").absolute().as_uri()
        assert f'url={address}"' in (run / ".review.html").read_text()
        assert {(run / name).stat().st_mode & 0o777 for name in (".review", ".review.html")} == {0o600}
    assert not (run / ".review.html").exists()


def test_the_page_has_no_findings_of_axe(address: str, browser: Any) -> None:
    page = browser.new_page(bypass_csp=True)
    page.goto(address)
    page.wait_for_selector("#answers button")
    for size in (DESKTOP, PHONE):
        for scheme in ("light", "dark"):
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            found = Axe().run(page).response["violations"]
            assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found] == [], (size, scheme)


def test_a_person_answers_25_questions_by_keys_goes_on_after_a_crash_and_finishes(
    run: Path, browser: Any, tmp_path: Path
) -> None:
    troubles: list[str] = []
    page = browser.new_page()
    with reviewing(run) as (address, process):
        page.on("console", lambda message: troubles.append(message.text))
        page.on("request", lambda sent: sent.url.startswith((address, "data:")) or troubles.append(sent.url))
        page.goto(address)
        page.wait_for_selector("#answers button")
        picture = page.locator("#groups img").first
        assert picture.evaluate("image => image.decode().then(() => image.width)") > 0
        assert page.locator("#undo").is_disabled()
        page.keyboard.press("1")
        page.locator("#progress", has_text="1 answer ").wait_for()
        page.keyboard.press("u")
        page.locator("#progress", has_text="0 answers").wait_for()
        for answered in range(1, 26):
            page.keyboard.press("m")
            page.locator("#progress", has_text=re.compile(rf"^{answered} answer")).wait_for()
        other = browser.new_page()
        other.goto(address)
        other.wait_for_selector("#answers button")
        page.locator("#cards select").first.select_option(index=1)
        page.locator("#progress", has_text="26 answers · 5 clusters").wait_for()
        other.keyboard.press("m")  # it has not seen the last answer, and sees it now
        other.locator("#progress", has_text="26 answers · 5 clusters").wait_for()
        page.reload()
        page.locator("#progress", has_text="26 answers · 5 clusters").wait_for()
        assert troubles == []
        process.kill()
        process.wait()
        page.keyboard.press("m")
        page.locator("#said", has_text="has ended").wait_for()
    page = browser.new_page(viewport=PHONE)
    with reviewing(run, "--out", str(tmp_path / "reviewed")) as (address, _):
        page.goto(address)
        page.locator("#progress", has_text="26 answers · 5 clusters").wait_for()
        page.locator("#cards input").first.fill("<i>discs</i>")
        page.keyboard.press("Tab")
        page.locator("#cards h3", has_text="<i>discs</i> (").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.click("#finish")
        page.locator("#said", has_text="written").wait_for(timeout=120_000)
    assert "\\u003ci>discs\\u003c/i>" in (tmp_path / "reviewed" / "report.html").read_text()
