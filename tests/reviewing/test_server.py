"""The page of a review: a person answers in a browser, and no other page or program can."""

from __future__ import annotations

import json
import os
import re
import shutil
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

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@contextmanager
def reviewing(run: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the command in a process of its own; yield the address of the page, and the process."""
    command = [sys.executable, "-m", "ucds", "review", str(run), "--no-open", *options]
    own_cache = os.environ | {"UCDS_CACHE": str(run.parent / "cache")}
    process = subprocess.Popen(command, env=own_cache, stderr=subprocess.PIPE, text=True)
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


def findings_of(page: Any) -> list[str]:
    """Return what axe finds wrong with a page, for people who cannot see or point."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]


@pytest.fixture
def address(run: Path) -> Iterator[str]:
    with reviewing(run) as (found, _):
        yield found


def records(run: Path) -> list[dict[str, Any]]:
    path = run / "answers.jsonl"
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    return [json.loads(line) for line in lines]


def tell(address: str, number: int, action: str, **values: Any) -> httpx.Response:
    return httpx.post(f"{address}tell", json={"number": number, "action": action, **values})


def test_answers_are_kept_at_once_and_taken_back(run: Path, address: str) -> None:
    state = httpx.get(f"{address}state").json()
    assert tell(address, state["number"], "answer", answer="mixed").status_code == 200
    assert [record["did"] for record in records(run)] == ["mixed"]
    assert tell(address, 1, "undo").json()["answered"] == 0


def test_a_second_window_does_not_answer_what_it_has_not_seen(run: Path, address: str) -> None:
    assert tell(address, 0, "answer", answer="mixed").status_code == 200
    late = tell(address, 0, "answer", answer="mixed")
    assert late.status_code == 409
    assert len(records(run)) == 1


@pytest.mark.parametrize(
    "headers", [{"Host": "stranger.example"}, {"Origin": "https://stranger.example"}, {"Origin": "null"}]
)
def test_other_hosts_and_origins_get_nothing(run: Path, address: str, headers: dict[str, str]) -> None:
    assert httpx.get(f"{address}state", headers=headers).status_code == 404
    body = {"number": 0, "action": "answer", "answer": "mixed"}
    assert httpx.post(f"{address}tell", json=body, headers=headers).status_code == 404
    assert records(run) == []


def test_another_token_gets_nothing(address: str) -> None:
    origin = address.rsplit("/", 2)[0]
    for path in ("/", "/state", "/wrong/", "/wrong/state", "/wrong/picture/0"):
        assert httpx.get(origin + path).status_code == 404


@pytest.mark.parametrize("body", [b"", b"[]", b'{"action": "answer"}', b'{"action": "x", "number": 0}'])
def test_bad_requests_are_refused_in_words(run: Path, address: str, body: bytes) -> None:
    answer = httpx.post(f"{address}tell", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert records(run) == []


def test_a_second_command_says_where_the_review_is(run: Path, address: str) -> None:
    command = [sys.executable, "-m", "ucds", "review", str(run), "--no-open"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert address in done.stderr


def test_a_person_answers_by_keys_and_finishes(run: Path, browser: Any, tmp_path: Path) -> None:
    with reviewing(run, "--out", str(tmp_path / "reviewed")) as (address, _):
        troubles: list[str] = []
        page = browser.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("request", lambda sent: sent.url.startswith((address, "data:")) or troubles.append(sent.url))
        page.goto(address)
        page.wait_for_selector("#answers button")
        assert (
            page.locator("#groups img").first.evaluate("image => image.decode().then(() => image.width)") > 0
        )
        assert page.locator("#undo").is_disabled()
        page.keyboard.press("1")
        page.locator("#progress", has_text="1 answer ").wait_for()
        page.keyboard.press("u")
        page.locator("#progress", has_text="0 answers").wait_for()
        page.keyboard.press("m")
        page.locator("#progress", has_text="1 answer ").wait_for()
        page.locator("#cards select").first.select_option(index=1)
        page.locator("#progress", has_text="2 answers · 3 clusters").wait_for()
        page.reload()
        page.locator("#progress", has_text="2 answers · 3 clusters").wait_for()
        page.set_viewport_size(PHONE)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.click("#finish")
        page.locator("#said", has_text="written").wait_for(timeout=120_000)
        assert troubles == []
    assert (tmp_path / "reviewed" / "report.html").exists()


def test_a_killed_review_keeps_every_answer(run: Path, browser: Any) -> None:
    with reviewing(run) as (address, process):
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#answers button")
        page.keyboard.press("m")
        page.locator("#progress", has_text="1 answer ").wait_for()
        process.kill()
        process.wait()
        page.keyboard.press("m")
        page.locator("#said", has_text="has ended").wait_for()
    with reviewing(run) as (address, _):
        assert httpx.get(f"{address}state").json()["answered"] == 1


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_findings_of_axe(
    run: Path, address: str, browser: Any, size: Any, scheme: str
) -> None:
    page = browser.new_page(viewport=size, color_scheme=scheme, bypass_csp=True)
    page.goto(address)
    page.wait_for_selector("#answers button")
    assert findings_of(page) == []


def test_names_are_given_on_the_page_and_stand_in_the_report(run: Path, browser: Any, tmp_path: Path) -> None:
    with reviewing(run, "--out", str(tmp_path / "named")) as (address, _):
        page = browser.new_page()
        page.goto(address)
        page.locator("#cards input").first.fill("<i>discs</i>")
        page.keyboard.press("Tab")
        page.locator("#cards h3", has_text="<i>discs</i> (0)").wait_for()
        page.click("#finish")
        page.locator("#said", has_text="written").wait_for(timeout=120_000)
    assert "\\u003ci>discs\\u003c/i>" in (tmp_path / "named" / "report.html").read_text()


def test_pictures_that_moved_are_found_and_those_that_are_gone_are_asked_about_no_more(
    run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run.parent / "pictures", tmp_path / "moved")
    with reviewing(run, "--images", str(tmp_path / "moved")) as (address, _):
        state = httpx.get(f"{address}state").json()
        asked = set(state["question"]["doubtful"])
        ids = fixed(address)["ids"]
        assert len(fixed(address)["pictures"]) == len(ids)
    for row in asked:
        (tmp_path / "moved" / ids[row]).unlink()
    with reviewing(run, "--images", str(tmp_path / "moved")) as (address, _):
        assert asked.isdisjoint(fixed(address)["pictures"])
        question = httpx.get(f"{address}state").json()["question"]
        assert question is None or set(question["doubtful"]) != asked


def fixed(address: str) -> Any:
    """Return what the page knows of the samples."""
    found = re.search(r"const FIXED = (.*);", httpx.get(address).text)
    assert found is not None
    return json.loads(found[1])
