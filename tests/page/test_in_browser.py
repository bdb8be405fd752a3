"""The report in a real browser: it loads whole, asks for nothing, shows everything and changes nothing."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from review_kit import DESKTOP, PHONE

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

Opened = Callable[..., Any]


@pytest.fixture
def opened(browser: Any) -> Iterator[Opened]:
    """Open a report in a page of its own; at the end the page must have asked and complained of nothing."""
    troubles: list[str] = []
    contexts: list[Any] = []

    def open_page(file: Path, scheme: str = "light", size: dict[str, int] = DESKTOP) -> Any:
        contexts.append(browser.new_context(color_scheme=scheme, viewport=size))
        page = contexts[-1].new_page()
        page.on(
            "console", lambda said: "ReadPixels" in said.text or troubles.append(f"{said.type}: {said.text}")
        )
        page.on("pageerror", lambda error: troubles.append(str(error)))
        own = file.resolve().as_uri()
        page.on(
            "request",
            lambda request: request.url.startswith(("blob:", "data:", own)) or troubles.append(request.url),
        )
        page.goto(own)
        page.wait_for_selector("#grid [role=option]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def test_every_picture_of_the_chosen_clusters_loads_and_one_is_found_by_its_id(
    opened: Opened, page_file: Path
) -> None:
    page = opened(page_file)
    assert page.locator("#grid [role=option]").count() == 37
    page.click(".pick >> nth=0")
    size = int(page.inner_text(".size >> nth=0").split()[0])
    expect(page.locator("#grid [role=option]")).to_have_count(size)
    widths = page.evaluate(
        """Promise.all([...document.querySelectorAll("#grid .picture")].map((element) => {
             const image = new Image();
             image.src = getComputedStyle(element).backgroundImage.slice(5, -2);
             return image.decode().then(() => image.naturalWidth);
           }))"""
    )
    assert set(widths) == {16 * 128}
    page.fill("#search", "<IMG SRC")
    expect(page.locator(".pick")).to_have_count(1)
    page.fill("#search", "no such thing")
    page.locator("text=No cluster has this name").wait_for()


def test_pictures_are_looked_at_with_the_keyboard_alone(opened: Opened, page_file: Path) -> None:
    page = opened(page_file)
    page.focus("#grid")
    page.keyboard.press("ArrowRight")
    first = page.inner_text("#side .id")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#side .id")).not_to_have_text(first)
    page.keyboard.press("Shift+ArrowRight")
    page.locator("#side h2", has_text="2 images chosen").wait_for()
    page.keyboard.press("l")
    page.locator("#side h3", has_text="Like 2 images").wait_for()
    assert page.locator(".near li").count() == 5
    page.keyboard.press("Control+a")
    page.locator("#side h2", has_text="37 images chosen").wait_for()
    page.keyboard.press("x")  # a file changes nothing, and says what does
    assert page.locator("#side button").all_inner_texts() == ["Like this (L)"]
    assert page.locator("#undo, #open-finish, #move-to").count() == 0
    assert "ucds review shapes" in page.inner_text("header")
    page.keyboard.press("Escape")
    expect(page.locator("[aria-selected=true]")).to_have_count(0)
    page.keyboard.press("k")  # the choice of the map is that of the grid
    page.locator("#map .label").first.wait_for()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(page.locator(".pin.chosen")).to_have_count(1)
    name = page.inner_text("#side .id")
    page.keyboard.press("g")
    assert page.locator("[aria-selected=true]").get_attribute("title").startswith(name)


def test_a_phone_has_three_screens_within_its_width_and_in_the_dark_a_dark_ground(
    opened: Opened, page_file: Path
) -> None:
    page = opened(page_file, "dark", PHONE)
    for screen, part in (("Clusters", ".left"), ("Pictures", "#grid"), ("Details", ".right")):
        page.click(f".screens button:has-text('{screen}')")
        page.wait_for_selector(part)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", ground))) < 64
