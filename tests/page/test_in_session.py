"""A person's hour with the page, in a real browser, and what the page says when the server has ended."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from playwright.sync_api import expect
from review_kit import records, reviewing

from ucds.target.review import Review

DROP = """([bytes, name]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name));
  dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
}"""


def sizes(page: Any) -> dict[int, int]:
    """Read from the page how many samples each cluster has."""
    rows = page.evaluate(
        """() => [...document.querySelectorAll(".pick")].map((row) => [Number(row.dataset.cluster),
             Number(row.querySelector(".size").textContent.split(" ")[0].replace(",", ""))])"""
    )
    return dict(rows)


def lasso(page: Any, left: float, top: float, right: float, bottom: float) -> int:
    """Draw a line around a part of the map, from 0 to 1; return how many samples are chosen."""
    page.click("#lasso")
    box = page.locator("#map").bounding_box()
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=5)
    page.mouse.up()
    page.locator("#said", has_text="chosen").wait_for()
    page.wait_for_timeout(300)  # the count of an earlier line stands there until this one is counted
    return int(page.inner_text("#said").split()[0].replace(",", ""))


def choose_clusters(page: Any, numbers: list[int]) -> None:
    for place, number in enumerate(numbers):
        page.click(f".pick[data-cluster='{number}']", modifiers=["Control"] if place else [])


def work(page: Any, run: Path) -> None:
    """Do what a person does in an hour, most of it by keys; the address of the run's page is open."""
    said, start = page.locator("#said"), sizes(page)
    total = sum(start.values())
    largest = sorted(start, key=lambda number: (-start[number], number))

    page.select_option("aside select", "doubt")  # find a wrong picture, and move it
    page.select_option("header select >> nth=1", "doubtful")
    page.click("#grid [role=option] >> nth=0")
    page.keyboard.press("t")
    expect(page.locator("#move-to")).to_be_focused()
    page.keyboard.type(str(largest[0]))
    page.keyboard.press("Enter")
    expect(said).to_contain_text("Moved 1 image")

    page.keyboard.press("k")  # move what lies in a part of the map
    page.locator("#map .label").first.wait_for(timeout=60_000)
    low = 0.5
    while (count := lasso(page, 0.02, 0.02, low, low)) > 0.4 * total:
        low -= 0.08
    assert count > 0
    page.keyboard.press("c")
    expect(said).to_contain_text(re.compile(f"Moved {count:,} images? to a new cluster"))
    assert sum(sizes(page).values()) == total

    page.keyboard.press("g")
    there = sorted(sizes(page), key=sizes(page).__getitem__)
    choose_clusters(page, there[:3])
    page.keyboard.press("j")
    expect(said).to_contain_text("Joined 3 clusters")
    expect(page.locator(".pick")).to_have_count(len(there) - 2)

    largest = sorted(sizes(page), key=lambda number: -sizes(page)[number])
    before = sizes(page)
    page.click(f".pick[data-cluster='{largest[0]}']")
    page.fill("#parts", "2")
    page.click("text=Show the parts")
    page.locator(".preview", has_text="Preview").wait_for()
    assert page.locator(".pick[aria-pressed=true]").count() == 2
    page.click("#take")
    expect(said).to_contain_text("Done: split")
    assert len(sizes(page)) == len(before) + 1

    page.keyboard.press("f")
    page.fill("#finer", "12")
    page.locator(".preview", has_text="Preview: 12 clusters").wait_for()
    page.keyboard.press("Escape")
    expect(said).to_contain_text("Nothing was changed")
    page.keyboard.press("f")
    page.fill("#finer", "12")
    page.locator(".preview", has_text="Preview: 12 clusters").wait_for()
    page.click("#take")
    expect(said).to_contain_text("Done: 12 clusters")
    assert len(sizes(page)) == 12
    finest = sizes(page)

    while page.locator("#undo").is_enabled():
        page.keyboard.press("u")
        expect(said).to_contain_text("Undid the last action")
        page.wait_for_timeout(50)
    assert sizes(page) == start
    while page.locator("#redo").is_enabled():
        page.keyboard.press("r")
        expect(said).to_contain_text("Repeated the action")
        page.wait_for_timeout(50)
    assert sizes(page) == finest

    number = max(finest, key=finest.__getitem__)
    page.click(f".pick[data-cluster='{number}']")
    page.fill("#name", "<i>first</i>")
    page.keyboard.press("Tab")
    page.locator(".pick .title", has_text="<i>first</i>").wait_for()

    page.click("text=Show all")
    page.keyboard.press("q")
    for _ in range(2):
        kept = len(records(run))
        page.locator(".answers button >> nth=0").wait_for()
        page.keyboard.press("m")
        expect(said).to_contain_text("Answered: Mixed")
        while len(records(run)) == kept:
            page.wait_for_timeout(20)
        page.wait_for_timeout(100)

    page.focus("#grid")
    page.keyboard.press("ArrowRight")
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("x")
    expect(said).to_contain_text("Set 5 images aside")
    assert sizes(page)[-1] == 5

    picture = next(run.parent.rglob("pictures/**/*.*g"))
    page.evaluate(DROP, [list(picture.read_bytes()), picture.name])
    expect(said).to_contain_text(re.compile("30 images like"), timeout=30_000)
    assert page.locator(".near li").count() == 30


def take_away(page: Any, run: Path) -> None:
    """Write everything, and look while it is written."""
    shown = sizes(page)
    page.click("#open-finish")
    page.select_option("[name=table]", "csv")
    page.select_option("[name=folders]", "link")
    page.click("#finish button.main")
    page.locator("#finish [role=status]", has_text="sorted into").wait_for(timeout=120_000)
    links = Counter(path.parent.name for path in run.with_name(f"{run.name}-sorted").glob("[!.]*/*"))
    assert sorted(links.values()) == sorted(shown.values())
    assert links["unsorted"] == shown[-1]
    table = run.with_name(f"{run.name}-table.csv").read_bytes()
    assert table.startswith(b"\xef\xbb\xbf")
    assert table.count(b"\n") == sum(shown.values()) + 1
    assert "\\u003ci>first\\u003c/i>" in (run.with_name(f"{run.name}-reviewed") / "report.html").read_text()


def test_a_person_works_for_an_hour(fresh: Path, trained: Path, browser: Any) -> None:
    (fresh.parent / "pictures").symlink_to(trained.parent / "pictures")
    page, troubles = browser.new_page(viewport={"width": 1440, "height": 900}), list[str]()
    with reviewing(fresh) as (address, _):
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda sent: sent.url.startswith((address, "data:")) or troubles.append(sent.url))
        page.goto(address)
        page.wait_for_selector("#grid [role=option]")
        work(page, fresh)
        take_away(page, fresh)
        shown, kept = sizes(page), records(fresh)
    assert troubles == []
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    expect(page.locator("#said")).to_contain_text("The review has ended")
    assert records(fresh) == kept
    assert dict(Review(fresh).seen.sizes) == shown == sizes(page)
