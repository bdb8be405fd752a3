"""The report in a real browser: it loads whole, asks for nothing, and takes names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from ucds.page.review import review

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
Opened = Callable[..., Any]


@pytest.fixture
def opened(browser: Any) -> Iterator[Opened]:
    """Open a report in a page of its own; at the end the page must have asked and complained of nothing."""
    troubles: list[str] = []
    contexts: list[Any] = []

    def open_page(file: Path, scheme: str = "light", size: dict[str, int] = DESKTOP) -> Any:
        contexts.append(browser.new_context(color_scheme=scheme, viewport=size, accept_downloads=True))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        own = file.resolve().as_uri()
        page.on(
            "request",
            lambda request: request.url.startswith(("blob:", "data:", own)) or troubles.append(request.url),
        )
        page.goto(own)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def saved(page: Any, button: str) -> Any:
    """Click a button that saves a file, and read the file."""
    with page.expect_download() as waiting:
        page.click(button)
    return json.loads(Path(waiting.value.path()).read_text())


def places(page: Any, cluster: int) -> list[int]:
    found: list[int] = page.evaluate("k => membersOf(k)", cluster)
    return found


def ids(page: Any, samples: list[int]) -> list[str]:
    found: list[str] = page.evaluate("list => list.map((i) => DATA.ids[i])", samples)
    return found


def test_every_picture_loads(opened: Opened, page_file: Path) -> None:
    page = opened(page_file)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # shows all, also those far below
    shown = page.evaluate(
        """Promise.all([...document.querySelectorAll("main .picture[data-picture]")].map((element) => {
             const image = new Image();
             image.src = getComputedStyle(element).backgroundImage.slice(5, -2);
             return image.decode().then(() => image.naturalWidth);
           }))"""
    )
    assert len(shown) > 20
    assert set(shown) == {16 * 128}


def test_pointing_at_a_mark_shows_its_picture(opened: Opened, page_file: Path) -> None:
    page = opened(page_file)
    canvas = page.locator("#map")
    canvas.scroll_into_view_if_needed()
    box, (x, y) = canvas.bounding_box(), page.evaluate("place(DATA.x[5], DATA.y[5])")
    page.mouse.move(box["x"] + x, box["y"] + y)
    assert page.locator("#tip").is_visible()
    pointed = page.evaluate("current")
    assert abs(page.evaluate("i => DATA.x[i] - DATA.x[5]", pointed)) < 30  # marks may lie upon each other
    assert ids(page, [pointed])[0] in page.inner_text("#tip")
    assert "blob:" in page.evaluate("getComputedStyle(find('#tip .picture')).backgroundImage")
    page.mouse.click(box["x"] + x, box["y"] + y)
    assert page.inner_text("#viewer-title") == ids(page, [pointed])[0]


def test_the_map_is_walked_with_the_arrow_keys(opened: Opened, page_file: Path) -> None:
    page = opened(page_file)
    page.focus("#map")
    page.keyboard.press("ArrowRight")
    seen = [page.evaluate("current")]
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        before = page.evaluate("current < 0 ? null : [DATA.x[current], DATA.y[current]]")
        page.keyboard.press(key)
        seen.append(page.evaluate("current"))
        after = page.evaluate("[DATA.x[current], DATA.y[current]]")
        way = {"ArrowRight": after[0] - before[0], "ArrowLeft": before[0] - after[0]}
        assert way.get(key, after[1] - before[1]) >= 0
    assert len(set(seen)) > 2
    assert page.inner_text("#said").startswith(ids(page, [seen[-1]])[0])
    page.keyboard.press("Enter")
    assert page.inner_text("#viewer-title") == ids(page, [seen[-1]])[0]
    page.keyboard.press("Escape")
    assert not page.locator("#viewer").is_visible()


def test_names_are_typed_saved_and_opened_again(opened: Opened, page_file: Path, tmp_path: Path) -> None:
    page = opened(page_file)
    assert page.is_disabled("#save-names")
    page.fill("[data-name='1']", " <b>crosses</b> ")
    page.keyboard.press("Tab")
    assert page.inner_text("#head-1 [data-name-of]") == "<b>crosses</b> (1)"
    content = saved(page, "#save-names")
    model = page.evaluate("DATA.model")
    assert content == {"format": "ucds-names/1", "model": model, "names": {"1": "<b>crosses</b>"}}
    (tmp_path / "names.json").write_text(json.dumps(content))
    other = opened(page_file)
    other.set_input_files("#open", tmp_path / "names.json")
    other.locator("#head-1", has_text="crosses").wait_for()
    assert other.input_value("[data-name='1']") == "<b>crosses</b>"
    (tmp_path / "foreign.json").write_text(json.dumps(content | {"model": "another"}))
    other.set_input_files("#open", tmp_path / "foreign.json")
    other.locator("#status", has_text="another model").wait_for()
    assert other.input_value("[data-name='1']") == "<b>crosses</b>"


def test_pictures_are_looked_at_with_the_keyboard_alone(opened: Opened, page_file: Path) -> None:
    page = opened(page_file)
    page.focus("#cluster-1 .thumb >> nth=0")
    page.keyboard.press("Enter")
    first = page.inner_text("#viewer-title")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#viewer-title") != first
    page.keyboard.press("Escape")
    assert not page.locator("#viewer").is_visible()
    page.focus("#cluster-2 [data-show]")
    page.keyboard.press("Space")
    assert page.locator("#gallery .thumb").count() == len(places(page, 2))
    page.keyboard.press("Escape")
    assert not page.locator("#gallery").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_everything_within_its_width(opened: Opened, page_file: Path, scheme: str) -> None:
    page = opened(page_file, scheme, PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.click("#cluster-0 .thumb >> nth=0")
    box = page.locator("#viewer").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
    page.click("#viewer .close")
    colours = page.evaluate("[getComputedStyle(document.body).backgroundColor, colourOf(0)]")
    assert colours == (
        ["rgb(253, 253, 251)", "#332288"] if scheme == "light" else ["rgb(22, 24, 28)", "#77AADD"]
    )


def test_answers_are_chosen_and_saved_as_the_review_takes_them(
    opened: Opened, page_file: Path, tmp_path: Path
) -> None:
    page = opened(page_file)
    assert page.is_disabled("#save-answers")
    page.locator("input[data-question='0']").first.check()
    assert page.inner_text("#status") == "No names, 1 answer."
    with page.expect_download() as waiting:
        page.click("#save-answers")
    kept = tmp_path / "answers.jsonl"
    waiting.value.save_as(kept)
    done = review(page_file.parent, tmp_path / "reviewed", answers=kept)
    assert done is not None
    assert done.answered == 1
    (page_file.parent / "answers.jsonl").unlink()
    page.locator("input[data-question='0']").last.check()
    assert page.is_disabled("#save-answers")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_axe_finds_nothing(browser: Any, page_file: Path, size: dict[str, int]) -> None:
    page = browser.new_page(viewport=size, bypass_csp=True)
    page.goto(page_file.resolve().as_uri())
    for dialog in ("", "openViewer(0, [0, 1])", "viewer.close(); openGallery(1)"):
        page.evaluate(dialog)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = Axe().run(page).response["violations"]
            assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found] == []
