"""Tests of what a query sends: images from where they may come, without metadata, in a random order."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_kit import run_command, run_successfully
from fake_service import KEY, FakeService
from PIL import Image

import ucds
from ucds.data.content import content_key
from ucds.data.decode import without_metadata
from ucds.data.folders import scan_folder
from ucds.errors import UcdsWarning
from ucds.labels.cluster_labels import marks_of

WriteImages = Callable[..., list[Path]]
SECRET = b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\n"
NAME = b"Mrs Miller"
ENCODER = ("--backbone", "ucds/oriented_edges", "--weights", "none", "--accelerator", "cpu")


@pytest.fixture
def place(write_images: WriteImages, tmp_path: Path) -> Path:
    """A folder of images, one private image and a private key beside it."""
    write_images(tmp_path / "images", [f"{c}/{i}.png" for c in "ab" for i in range(6)], size=(8, 8))
    write_images(tmp_path / "private", ["face.png"], 90, size=(8, 8))
    (tmp_path / "private" / "id_rsa").write_bytes(SECRET)
    (tmp_path / "private" / "id_rsa.png").write_bytes(SECRET)
    return tmp_path


def _link_in_a_folder(place: Path, target: Path) -> Path:
    (place / "images" / "a" / "9.png").symlink_to(target)
    return place / "images"


def _link_to_a_folder(place: Path, target: Path) -> Path:
    (place / "images" / "c").symlink_to(target.parent)
    return place / "images"


def _list(place: Path, target: Path) -> Path:
    named = [str(path.relative_to(place)) for path in sorted(place.glob("images/*/*.png"))]
    (place / "images" / "list.txt").write_text("\n".join([*(f"../{name}" for name in named), str(target)]))
    return place / "images" / "list.txt"


def _table(place: Path, target: Path) -> Path:
    with (place / "images" / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path"], ["a/0.png"], [f"../private/{target.name}"]])
    return place / "images" / "list.csv"


WAYS = {"link": _link_in_a_folder, "linked folder": _link_to_a_folder, "list": _list, "table": _table}


@pytest.mark.parametrize(
    ("way", "more"),
    [*((way, ()) for way in WAYS), ("link", ("--max-queries", 5, *ENCODER)), ("list", ("--keep-metadata",))],
)
def test_a_file_elsewhere_is_not_sent_whatever_names_it(
    service: FakeService, place: Path, way: str, more: tuple[str, ...]
) -> None:
    source = WAYS[way](place, place / "private" / "face.png")
    command = ("query", source, "--url", service.url, "--out", "labels.json", *more)
    status, _, told = run_command(*command)
    assert status == 2
    assert f"lie outside {place / 'images'}, such as" in told
    assert "send them too by --allow-outside" in told
    assert service.requests == 0
    assert not Path("labels.json").exists()
    run_successfully(*command, "--allow-outside")
    assert (place / "private" / "face.png").read_bytes() in service.asked or "--max-queries" in more


@pytest.mark.parametrize(("way", "name"), [("link", "id_rsa.png"), ("list", "id_rsa"), ("table", "id_rsa")])
def test_what_is_not_an_image_is_never_sent(service: FakeService, place: Path, way: str, name: str) -> None:
    source = WAYS[way](place, place / "private" / name)
    for number, more in enumerate([{}, {"keep_metadata": True}]):
        with ucds.LabelClient(service.url, KEY) as client, pytest.warns(UcdsWarning, match="not an image"):
            labels = ucds.query(source, f"{number}.json", client, allow_outside=True, **more)
        assert len(labels.ids) > 0
    assert not any(b"PRIVATE KEY" in body for body in service.bodies)


def test_a_folder_that_is_a_link_itself_is_sent(service: FakeService, place: Path) -> None:
    Path("link").symlink_to(place / "images")
    (place / "images" / "b" / "inside.png").symlink_to(place / "images" / "a" / "0.png")
    with ucds.LabelClient(service.url, KEY) as client:
        assert len(ucds.query("link", "labels.json", client).ids) == 13


def test_metadata_stay_here_unless_they_are_kept_and_cost_nothing(service: FakeService, place: Path) -> None:
    exif = Image.Exif()
    exif[0x010E], exif[0x0112] = NAME.decode(), 6
    for path in sorted(place.glob("images/a/*.png")):
        for copy in range(2):
            Image.open(path).save(path.with_suffix(f".{copy}.jpg"), exif=exif, comment=NAME + b"%d" % copy)
    with ucds.LabelClient(service.url, KEY) as client:
        labels = ucds.query(place / "images", "labels.json", client)
        assert not any(NAME in body for body in service.bodies)
        assert (len(labels.ids), len(service.charged)) == (24, 18)  # copies are paid for once
        ucds.query(place / "images", "kept.json", client, keep_metadata=True)
    assert any(NAME in body for body in service.bodies)
    files = [place / "images" / name for name in scan_folder(place / "images").ids]
    assert labels.contents == marks_of([content_key(path.read_bytes()) for path in files])


def _asked(service: FakeService) -> list[bytes]:
    asked = list(service.asked)
    service.asked.clear()
    return asked


def test_the_order_is_random_and_a_query_goes_on_in_its_own(service: FakeService, place: Path) -> None:
    service.info["max_batch"], service.limit = 1, 4
    sent = [
        without_metadata((place / "images" / name).read_bytes()) for name in scan_folder(place / "images").ids
    ]
    orders = []
    for out in ("a.json", "b.json", "c.json"):
        service.charged.clear()
        with ucds.LabelClient(service.url, KEY, overdraw=True) as client:
            with pytest.raises(ucds.UserError, match="used up"):
                ucds.query(place / "images", out, client)
            first = _asked(service)
            with pytest.raises(ucds.UserError, match="used up"):
                ucds.query(place / "images", out, client)
        again = _asked(service)
        assert set(again) <= set(first) | set(sent)
        assert not service.charged & set(again)
        assert set(first) - service.charged <= set(again)  # which were asked about first are again
        orders.append(first)
    assert sent not in [order[: len(sent)] for order in orders]
    assert len({tuple(order) for order in orders}) > 1


def test_a_calibration_tells_no_order(service: FakeService, place: Path) -> None:
    """Two calibrations of the same folder draw differently: nobody can compute which sample stands where."""
    service.info |= {"max_batch": 6, "fewest_to_calibrate": 2}
    drawn = []
    for number in range(4):
        with ucds.LabelClient(service.url, KEY, calibrate=True) as client, pytest.raises(ucds.UserError):
            ucds.query(place / "images", f"{number}.json", client)  # the fake service cannot calibrate
        drawn.append(tuple(_asked(service)))
    assert len(set(drawn)) > 1
