"""The page of a review: a person works in a browser, and no other page or program can.

One command serves the page for all tests but those that kill it; each test takes back what it does.
"""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_kit import draw_domain
from playwright.sync_api import expect
from quick import quick
from review_kit import DESKTOP, EDGES, PHONE, records, require_no_findings_of_axe, reviewing
from serving_kit import wait_until

import ucds


@pytest.fixture(scope="module")
def served(trained: Path) -> Iterator[str]:
    """The address of a page of the run, which a proxy has under another name, too."""
    with reviewing(trained, "--host", "Hub.example") as (address, _):
        yield address


@pytest.fixture
def address(served: str) -> Iterator[str]:
    """The address of the page; what a test does is taken back."""
    yield served
    while (state := httpx.get(f"{served}state").json())["can_undo"]:
        tell(served, state["number"], "undo")


def tell(address: str, number: int, action: str, **values: Any) -> httpx.Response:
    return httpx.post(f"{address}tell", json={"number": number, "action": action, **values})


def act(address: str, action: str, **values: Any) -> dict[str, Any]:
    """Do something, and return the state afterwards."""
    response = tell(address, httpx.get(f"{address}state").json()["number"], action, **values)
    assert response.status_code == 200, response.text
    state: dict[str, Any] = response.json()
    return state


def test_actions_are_kept_at_once_and_taken_back(trained: Path, address: str) -> None:
    before = httpx.get(f"{address}state").json()
    rows = [row for row, number in enumerate(before["clusters"]) if number == before["clusters"][0]][:2]
    for action, values in {
        "answer": {"answer": "mixed"},
        "name": {"cluster": 3, "name": "bars"},
        "move": {"rows": rows, "to": "new"},
        "aside": {"rows": rows},
        "join": {"clusters": [0, 1]},
        "split": {"cluster": 2, "parts": 2},
        "cut": {"n": 4},
    }.items():
        kept = len(records(trained))
        after = act(address, action, **values)
        assert len(records(trained)) == kept + 1, action
        assert (after["clusters"] != before["clusters"]) == (action not in ("name", "answer"))
        undone = act(address, "undo")
        assert (undone["clusters"], undone["names"]) == (before["clusters"], before["names"])
    assert act(address, "redo")["clusters"] == after["clusters"]


def test_a_preview_changes_nothing_and_taking_it_gives_what_it_showed(trained: Path, address: str) -> None:
    kept, cuts = records(trained), httpx.get(f"{address}cuts").json()
    assert cuts["least"] <= 2 < 18 <= cuts["most"]
    for values in ({"action": "cut", "n": 9}, {"action": "split", "cluster": 1, "parts": 2}):
        shown = httpx.post(f"{address}preview", json=values).json()
        assert records(trained) == kept
        assert act(address, **values)["clusters"] == shown["clusters"]
        act(address, "undo")
        kept = records(trained)


def test_what_is_like_some_pictures_or_a_dropped_one_is_found(trained: Path, address: str) -> None:
    found = httpx.post(f"{address}like", json={"rows": [0]}).json()["rows"]
    ids = httpx.get(f"{address}fixed").json()["ids"]
    assert 0 not in found
    assert len(found) == 30
    picture = (trained.parent / "pictures" / ids[0]).read_bytes()
    kind = {"Content-Type": "application/octet-stream"}
    dropped = httpx.post(f"{address}like", content=picture, headers=kind, timeout=60).json()["rows"]
    assert 0 in dropped
    refused = httpx.post(f"{address}like", content=b"no picture", headers=kind, timeout=60)
    assert refused.status_code == 400
    assert refused.json()["error"]


def test_a_second_window_does_nothing_that_it_has_not_seen(trained: Path, address: str) -> None:
    number = httpx.get(f"{address}state").json()["number"]
    assert tell(address, number, "answer", answer="mixed").status_code == 200
    assert tell(address, number, "answer", answer="mixed").status_code == 409
    assert len(records(trained)) == number + 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:9000", "Origin": "http://localhost:9000"},  # a forwarded port
        {"Host": "hub.example", "Origin": "https://hub.example"},  # a proxy that passes the name on
        {"Origin": "https://hub.example"},  # one that does not
    ],
)
def test_the_names_of_this_machine_and_those_named_are_answered(
    address: str, headers: dict[str, str]
) -> None:
    page = httpx.get(address, headers=headers)
    assert page.status_code == 200
    assert not re.search(r'(?:src|href)="/|fetch\("/', page.text)  # a proxy may put a path before the token
    number = httpx.get(f"{address}state").json()["number"]
    body = {"number": number, "action": "answer", "answer": "mixed"}
    assert httpx.post(f"{address}tell", json=body, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"Host": "stranger.example:80"}, "stranger.example"),
        ({"Origin": "https://stranger.example"}, "stranger.example"),
        ({"Origin": "http://localhost:1"}, "localhost"),
        ({"Origin": "null"}, "of no name"),
    ],
)
def test_other_names_are_told_what_to_do_and_nothing_else(
    trained: Path, address: str, headers: dict[str, str], named: str
) -> None:
    before = records(trained)
    body = {"number": len(before), "action": "answer", "answer": "mixed"}
    refused = httpx.post(f"{address}tell", json=body, headers=headers)
    assert refused.status_code == 403
    assert (
        refused.text
        == f"This review does not know the address {named}: start it again with {named} as its host\n"
    )
    assert records(trained) == before


def test_another_token_gets_nothing(address: str) -> None:
    origin = address.rsplit("/", 2)[0]
    wrong = [f"/wrong/{path}" for path in ("", "fixed", "state", "picture/0/128")]
    for path in ("/", "/state", *wrong):
        for headers in ({}, {"Host": "stranger.example"}):
            assert httpx.get(origin + path, headers=headers).status_code == 404
    assert httpx.get(f"{address}%2e%2e/server.py").status_code == 404


def test_bad_requests_are_refused_in_words(trained: Path, address: str) -> None:
    before = records(trained)
    counted = b', "number": %d}' % len(before)
    unknown = (b'{"action": "x"' + counted, b'{"action": "move", "rows": [99999], "to": 0' + counted)
    for body in (b"", b"[]", b'{"action": "answer"}', *unknown):
        refused = httpx.post(f"{address}tell", content=body)
        assert (refused.status_code, "error" in refused.json()) == (400, True), body
    assert httpx.get(f"{address}picture/1000/128").status_code == 400
    assert httpx.post(f"{address}finish", json={"table": "../x"}).status_code == 200
    wait_until(lambda: not httpx.get(f"{address}task").json()["running"])
    assert "`table` must be one of csv, parquet" in httpx.get(f"{address}task").json()["error"]
    assert records(trained) == before


def test_what_is_taken_away_has_the_samples_that_are_not_in_the_review(tmp_path: Path) -> None:
    pictures, run, total = tmp_path / "pictures", tmp_path / "run", 105
    draw_domain(pictures, ("green", "white"), 3, count=35)
    few = quick(bottleneck_width=8, most_samples=100)
    ucds.train_target(pictures, run, n_clusters=3, encoder=EDGES, settings=few)
    with reviewing(run) as (address, _):
        fixed = httpx.get(f"{address}fixed").json()
        assert fixed["left_out"] == 5
        for table in ("run-table.csv", "run-table-2.csv"):
            httpx.post(f"{address}finish", json={"table": "csv", "folders": "link"})
            wait_until(lambda: not httpx.get(f"{address}task").json()["running"])
            assert "error" not in httpx.get(f"{address}task").json()
            lines = (tmp_path / table).read_text("utf-8-sig").splitlines()[1:]
            folders = [path.parent.name for path in (tmp_path / "run-sorted").glob("[!.]*/*")]
            assert (len(lines), len(folders)) == (total, total)
            assert (
                (folders.count("cluster_3") == 1) == (tmp_path / "run-reviewed").exists() == ("-2" in table)
            )
            act(address, "move", rows=[7], to="new")
    assert [line for line in lines if ",3," in line] == [f'"{fixed["ids"][7]}",3,1.0000,"","person"']


def test_a_second_review_is_refused_with_the_address_of_the_first(trained: Path, address: str) -> None:
    with pytest.raises(ucds.InputError, match=f"is open already: {re.escape(address)}"):
        ucds.review(trained, open_browser=False)


def test_the_address_reaches_the_browser_by_a_private_file(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".review", ".review.html"):
        (fresh / name).touch()
        (fresh / name).chmod(0o644)
    browser, told = tmp_path / "browser", tmp_path / "told"
    browser.write_text(f"#!/bin/sh\necho $* > {told}.new; mv {told}.new {told}\n")
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with reviewing(fresh, opens=True) as (address, process):
        wait_until(told.exists)
        (page,) = told.read_text().split()
        assert page == (fresh / ".review.html").absolute().as_uri()
        assert f'url={address}"' in (fresh / ".review.html").read_text()
        assert {(fresh / name).stat().st_mode & 0o777 for name in (".review", ".review.html")} == {0o600}
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert "keeps the answers: run the same command to continue" in process.stderr.read()
    assert not (fresh / ".review.html").exists()


def test_a_rectangle_chooses_pictures_and_they_are_dragged_onto_a_cluster(address: str, browser: Any) -> None:
    page = browser.new_page(viewport=DESKTOP)
    page.goto(address)
    cells = page.locator("#grid [role=option]")
    one, other = cells.nth(1).bounding_box(), cells.nth(2).bounding_box()
    page.mouse.move(one["x"] + 20, one["y"] + 20)
    page.mouse.down()
    page.mouse.move(other["x"] + 20, other["y"] + 20, steps=5)
    page.mouse.up()
    expect(page.locator("#grid [aria-selected=true]")).to_have_count(2)
    last = page.locator(".pick").last
    cluster = last.get_attribute("data-cluster")  # afterwards, the sizes may have another order
    cells.nth(2).drag_to(last)
    expect(page.locator("#said")).to_have_text(f"Moved 2 images to cluster {cluster}.")
    page.close()


def test_a_preview_comes_into_sight_and_nothing_else_is_done_before_it_ends(
    trained: Path, address: str, browser: Any
) -> None:
    page, before = browser.new_page(viewport=PHONE), len(records(trained))
    page.goto(address)
    for step in ("Clusters", ".pick >> nth=0", "Details", "text=Show the parts"):
        page.click(step if step[0] in ".t" else f".screens button:has-text('{step}')")
    expect(page.locator("#take")).to_be_visible()
    page.click("#grid [role=option] >> nth=0")
    page.keyboard.press("x")
    expect(page.locator("#said")).to_have_text("Take the preview, or cancel it, first.")
    page.set_viewport_size(DESKTOP)
    buttons = [page.locator(".preview button").nth(place).bounding_box() for place in (0, 1)]
    assert buttons[0]["y"] == buttons[1]["y"]
    assert len(records(trained)) == before
    page.close()


AT_REST = """async () => {
    const grid = document.getElementById('grid'), before = grid.scrollTop;
    await new Promise((done) => setTimeout(done, 300));
    return grid.scrollTop === before;
}"""


def test_a_finger_chooses_pictures_scrolls_and_sets_aside(address: str, browser: Any) -> None:
    page = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True).new_page()
    page.goto(address)
    cells = page.locator("#grid [role=option]")
    for place in (0, 1, 2, 1):  # the last tap takes one back
        cells.nth(place).tap()
    expect(page.locator("#grid [aria-selected=true]")).to_have_count(2)
    finger = page.context.new_cdp_session(page)
    for y in range(600, 300, -20):
        kind = "touchStart" if y == 600 else "touchMove"
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": 200, "y": y}]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function("() => document.getElementById('grid').scrollTop > 100")
    page.wait_for_timeout(500)
    page.wait_for_function(AT_REST)  # a tap before that only stops it
    page.locator(".screens button", has_text="Chosen (2)").tap()
    page.locator("text=Set aside").tap()
    expect(page.locator("#said")).to_have_text("Set 2 images aside.")
    page.context.close()


def test_the_page_has_no_findings_of_axe(address: str, browser: Any) -> None:
    page = browser.new_page(bypass_csp=True)
    page.goto(address)
    page.wait_for_selector(".answers button")
    steps = (".pick >> nth=0", "text=Show the parts", "text=Cancel (Esc)", "#grid [role=option] >> nth=0")
    for step in ("", *steps, "#open-map", "#open-about", "#open-finish"):
        if step == "#open-finish":
            page.keyboard.press("Escape")  # out of the dialog before
        if step:
            page.click(step)
        if step == "text=Show the parts":
            page.wait_for_selector("#take:enabled")
        if step not in steps[::2]:  # which show nothing new
            require_no_findings_of_axe(page, step)
    page.close()
