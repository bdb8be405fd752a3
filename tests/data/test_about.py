"""What is known about samples: tables that name them in several ways, and what image files tell."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_kit import dicom
from PIL import Image

from ucds.data.about import FOLDERS, column_of, find_about, read_values
from ucds.data.folders import scan_folder
from ucds.errors import InputError, UcdsWarning

NAMES = ("a/1.png", "a/2.png", "b/3.png")
PICTURE = np.zeros((20, 30, 3), np.uint8)


@pytest.fixture
def images(tmp_path: Path, write_images: Any) -> Path:
    write_images(tmp_path / "images", NAMES, size=(30, 20))
    return tmp_path / "images"


def table(folder: Path, text: str) -> Path:
    (folder / "about.csv").write_text(text)
    return folder / "about.csv"


@pytest.mark.parametrize(
    "text",
    [
        "id,site,age\nb/3.png,C,7\na/1.png,A,5\na/2.png,,6\n",
        "site,path,age\nC,b/3.png,7\nA,a/1.png,5\nn/a,a/2.png,6\n",
        "file_name,site,age\n3.png,C,7\n1.png,A,5\n2.png,unknown,6\n",
        "sample,site,age\n/elsewhere/3.png,C,7\n/elsewhere/1.png,A,5\n/elsewhere/2.png, ,6\n",
    ],
    ids=["ids", "paths", "names of files", "paths elsewhere"],
)
def test_rows_are_found_by_ids_and_by_names_of_files(images: Path, tmp_path: Path, text: str) -> None:
    found = find_about(scan_folder(images), table(tmp_path, text))
    assert found == {"site": ["A", "", "C"], "age": ["5", "6", "7"]}
    assert find_about(scan_folder(images), tmp_path / "about.csv", np.array([2]))["site"] == ["C"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("patient,site\n1,A\n", "does not say what its rows are about: name a column 'id' or 'path'"),
        ("id,site\nx.png,A\n", "no row about 3 of 3 samples: .* must hold ids such as 'a/1.png'"),
        ("id,site\na/1.png,A\na/1.png,B\n", "two rows about 'a/1.png'"),
        ("path,site\nx/1.png,A\ny/1.png,B\n", "two rows about '1.png'"),
    ],
)
def test_tables_that_tell_nothing_are_refused(images: Path, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_about(scan_folder(images), table(tmp_path, text))


def test_a_table_may_tell_of_some_samples_alone(images: Path, tmp_path: Path) -> None:
    with pytest.warns(UcdsWarning, match="no row about 1 of 3 samples"):
        found = find_about(scan_folder(images), table(tmp_path, "id,site\na/1.png,A\na/2.png,B\n"))
    assert found["site"] == ["A", "B", ""]
    with pytest.raises(InputError, match="there is no column 'scanner' .* name one of 'site'"):
        column_of(found, "scanner")


def exif(camera: bool) -> Any:
    tags = Image.Exif()
    tags[0x010F], tags[0x0110] = ("Maker", "Model 7\0") if camera else ("", "")
    tags.get_ifd(0x8769)[0x9003] = tags[0x0132] = "2024:02:03 10:00:00"  # a TIFF has the second alone
    return tags


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
def test_headers_tell_size_device_and_date(tmp_path: Path, suffix: str) -> None:
    for number in range(2):
        Image.fromarray(PICTURE).save(tmp_path / f"{number}.{suffix}", exif=exif(camera=number == 0))
    found = find_about(scan_folder(tmp_path), None)
    told = [found[name] for name in ("width", "height", "file type", "device", "date")]
    dates = ["2024:02:03 10:00:00"] * 2
    assert told == [["30"] * 2, ["20"] * 2, [f".{suffix}"] * 2, ["Maker Model 7", ""], dates]


def test_headers_of_dicom_files_tell_the_same(tmp_path: Path) -> None:
    told = {"Rows": 20, "Columns": 30, "StudyDate": "20240203", "Manufacturer": "Maker"}
    (tmp_path / "1.dcm").write_bytes(dicom(**told, ManufacturerModelName="Scanner B"))
    found = find_about(scan_folder(tmp_path), None)
    told = [found[name][0] for name in ("width", "height", "device", "date")]
    assert told == ["30", "20", "Maker Scanner B", "20240203"]


def test_files_that_cannot_be_read_tell_nothing_and_pixels_are_not_read(images: Path) -> None:
    whole = (images / NAMES[0]).read_bytes()
    start = whole.index(b"IDAT") + 4
    (images / NAMES[0]).write_bytes(whole[:start] + b"\xff" * (len(whole) - start))
    (images / "damaged.png").write_bytes(whole[:20])
    os.mkfifo(images / "pipe.png")
    assert find_about(scan_folder(images), None)["width"] == ["30", "30", "30", "", ""]


def test_folders_are_told_below_what_all_share(tmp_path: Path, write_images: Any) -> None:
    write_images(tmp_path, ("all/x/1/1.png", "all/x/2/2.png", "all/y/1/3.png"))
    found = find_about(scan_folder(tmp_path), None)
    assert [found[name] for name in FOLDERS] == [["x", "x", "y"], ["x/1", "x/2", "y/1"]]


NUMBERS = [str(i) for i in range(13)]


@pytest.mark.parametrize(
    "texts",
    [
        NUMBERS,
        [f"2024-01-{i + 1:02}" for i in range(13)],
        [f"2024:01:{i + 1:02} 10:00:00" for i in range(13)],
        ["", *(f"{i}.5" for i in range(13))],
    ],
)
def test_many_numbers_and_dates_are_measures(texts: list[str]) -> None:
    values = read_values([*texts, *reversed(texts)])
    unknown = np.array([text == "" for text in (*texts, *reversed(texts))])
    np.testing.assert_array_equal(np.isnan(values), unknown)
    assert (np.diff(values[: len(texts)][~unknown[: len(texts)]]) > 0).all()


@pytest.mark.parametrize("texts", [NUMBERS[:12], ["2024-01-01", "2024-01-02"], [f"no {i}" for i in NUMBERS]])
def test_few_numbers_and_dates_and_all_words_are_codes(texts: list[str]) -> None:
    values = read_values([*texts, *texts])
    assert values.dtype == np.int64
    assert sorted(values) == [code for code in range(len(texts)) for _ in range(2)]
