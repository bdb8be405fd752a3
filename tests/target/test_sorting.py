"""Folders of sorted images: made anywhere, added to later, and what a person did in them stays."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ucds.choices import Sorting
from ucds.data.content import content_key
from ucds.data.folders import scan_folder
from ucds.errors import DamagedFileError, InputError, NoSpaceError
from ucds.target.predictions import SORTING_FILE, Predictions, portable_name, read_sorting, sort_into_folders

K = 3


def write(folder: Path, name: str) -> None:
    """Write a file that holds its own name, where there is none."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    if not (folder / name).exists():
        (folder / name).write_text(name)


def sort(
    images: Path,
    out: Path,
    clusters: Mapping[str, int],
    names: Mapping[int, str] | None = None,
    how: Sorting = "copy",
) -> None:
    """Write the images of the mapping that are not there, and sort them under the keys of their contents."""
    for name in clusters:
        write(images, name)
    files = scan_folder(images)
    files = files.take(np.flatnonzero([name in clusters for name in files.ids]))
    keys = [content_key(files.file(i).read_bytes()) for i in range(len(files))]
    numbers = np.array([clusters[name] for name in files.ids])
    found = Predictions(files.ids, numbers, np.ones(len(numbers), np.float32), names or {}, K, files)
    sort_into_folders(out, found, keys, how, model="m")


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.glob("[!.]*/*")}


WEEK = {"a.png": 0, "b.png": 1, "sub/c.png": 1}
CLASH = {"a/1.png": 0, "a__1.png": 0, "b/deep/2.png": 1, "3.png": 1}
# Of the two that want one name the first in the order of the files gets it.
SORTED = {"cluster_0/a__1.png": "a/1.png", "cluster_0/sample 3.png": "a__1.png"}
SORTED |= {"cluster_1/b__deep__2.png": "b/deep/2.png", "cluster_1/3.png": "3.png"}


@pytest.mark.parametrize("how", ["copy", "link"])
@pytest.mark.parametrize("kind", ["new", "empty", "link", "mounted"])
def test_a_folder_of_any_kind_is_filled(
    tmp_path: Path, kind: str, how: Sorting, request: pytest.FixtureRequest
) -> None:
    out = request.getfixturevalue("disk") if kind == "mounted" else tmp_path / "out"
    if kind == "empty":
        out.mkdir()
    elif kind == "link":
        (tmp_path / "real").mkdir()
        out.symlink_to("real")
    sort(tmp_path / "images", out, CLASH, how=how)
    assert contents(out) == SORTED
    assert [path.is_symlink() for path in out.glob("*/*.png")] == [how == "link"] * 4
    assert out.is_symlink() == (kind == "link")
    assert sorted(path.name for path in out.iterdir()) == [SORTING_FILE, *(f"cluster_{k}" for k in range(K))]
    assert len(list((tmp_path / "images").rglob("*.png"))) == 4


def test_a_second_week_adds_images_and_moves_those_of_other_clusters(tmp_path: Path) -> None:
    images, out = tmp_path / "images", tmp_path / "out"
    write(images, "a.png")
    (images / "a.png").chmod(0o640)
    os.utime(images / "a.png", (1e9, 1e9))
    sort(images, out, WEEK)
    status = (out / "cluster_0" / "a.png").stat()
    assert (status.st_mtime, status.st_mode & 0o777) == (1e9, 0o640)
    (images / "b.png").rename(images / "renamed.png")
    sort(images, out, {"renamed.png": 2, "d.png": 0})
    kept = {"cluster_0/a.png": "a.png", "cluster_1/sub__c.png": "sub/c.png"}
    assert contents(out) == kept | {"cluster_2/renamed.png": "b.png", "cluster_0/d.png": "d.png"}
    (images / "renamed.png").unlink()
    sort(images, out, WEEK | {"d.png": 0}, {0: "cats"})
    assert contents(out) == {
        **{"cats/a.png": "a.png", "cats/d.png": "d.png"},
        **{"cluster_1/b.png": "b.png", "cluster_1/sub__c.png": "sub/c.png"},
    }


def test_what_a_person_did_in_the_folder_stays(tmp_path: Path) -> None:
    images, out = tmp_path / "images", tmp_path / "out"
    week = {f"{name}.png": 0 for name in ("added", "changed", "moved", "removed", "renamed")}
    sort(images, out, week)
    (out / "cluster_0" / "removed.png").unlink()
    (out / "cluster_0" / "renamed.png").rename(out / "cluster_0" / "better.png")
    (out / "cluster_0" / "moved.png").rename(out / "cluster_2" / "moved.png")
    (out / "cluster_0" / "changed.png").write_text("turned")
    (out / "cluster_1" / "added.png").write_text("by hand")
    (out / "notes.txt").write_text("mine")
    expected = contents(out)
    del expected["cluster_0/added.png"]
    expected["cluster_1/sample 1.png"] = "added.png"
    for _ in range(2):
        sort(images, out, dict.fromkeys(week, 1))
        assert contents(out) == expected
    assert (out / "notes.txt").read_text() == "mine"


def die_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End this process, as a kill does, when a further folder is made or a further file renamed."""
    left = iter(range(steps))
    for name in ("replace", "rename", "mkdir"):
        real = getattr(Path, name)

        def step(self: Path, *given: Any, real: Callable[..., Any] = real, **named: Any) -> Any:
            return os._exit(9) if next(left, None) is None else real(self, *given, **named)

        monkeypatch.setattr(Path, name, step)


@pytest.mark.parametrize("step", range(24))
def test_a_call_that_is_killed_can_be_repeated(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, out = tmp_path / "images", tmp_path / "out"
    out.mkdir()
    later = {"a.png": 1, "b.png": 1, "sub/c.png": 2, "d.png": 0}
    for week in (WEEK, later):
        child = os.fork()
        if not child:
            die_after(step, monkeypatch)
            sort(images, out, week)
            os._exit(0)
        os.waitpid(child, 0)
        sort(images, out, week)
        placed = {name: path.split("/")[0] for path, name in contents(out).items()}
        assert placed == {name: f"cluster_{k}" for name, k in week.items()}
        assert len(contents(out)) == len(week)


def test_a_disk_that_fills_is_the_culprit_and_nothing_is_left(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "large.png").write_bytes(bytes(5 * 2**20))
    with pytest.raises(NoSpaceError, match=f"cannot write {disk}: No space left on device"):
        sort(tmp_path / "images", disk, WEEK | {"large.png": 0})
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("how", ["copy", "link"])
def test_symbolic_links_become_files_that_open_and_what_they_lead_to_stays(
    tmp_path: Path, how: Sorting, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, images = tmp_path / "archive", tmp_path / "images"
    for folder, name in ((archive, "1.png"), (archive, "deep/2.png"), (images, "own.png")):
        write(folder, name)
    (images / "one.png").symlink_to("../archive/1.png")
    (images / "same.png").symlink_to("own.png")
    (images / "deep").symlink_to("../archive/deep")
    monkeypatch.chdir(tmp_path)
    found = ("own.png", "one.png", "same.png", "deep/2.png")
    sort(Path("images"), Path("out"), dict.fromkeys(found, 0), how=how)
    expected = {"own.png": "own.png", "one.png": "1.png", "same.png": "own.png", "deep__2.png": "deep/2.png"}
    assert contents(tmp_path / "out") == {f"cluster_0/{name}": text for name, text in expected.items()}
    assert (archive / "1.png").read_text() == "1.png"
    assert (archive / "deep" / "2.png").read_text() == "deep/2.png"


@pytest.mark.parametrize(
    ("clusters", "names", "folders"),
    [
        ((1, -1, -1, 0), {1: "unsorted"}, ["cluster_0", "unsorted", "unsorted_", "unsorted_"]),
        ((0, 1, 2, 2), dict.fromkeys((0, 1), "cat") | {2: " . "}, ["cat", "cat", "cluster_2", "cluster_2"]),
        ((0, 1, 2, 2), {0: "cluster_2", 1: "../up"}, ["_up", "cluster_2", "cluster_2", "cluster_2_"]),
    ],
    ids=["doubtful images", "one name for two", "names of other places"],
)
def test_clusters_share_a_folder_only_if_they_have_one_name(
    tmp_path: Path, clusters: tuple[int, ...], names: dict[int, str], folders: list[str]
) -> None:
    sort(tmp_path / "images", tmp_path / "out", dict(zip(CLASH, clusters, strict=True)), names)
    assert sorted(path.parent.name for path in (tmp_path / "out").glob("[!.]*/*")) == folders


def test_a_file_that_is_called_like_a_number_is_kept(tmp_path: Path) -> None:
    sort(tmp_path / "images", tmp_path / "out", dict.fromkeys(("sample 3.png", "z/1.png", "z__1.png"), 0))
    expected = {"sample 3.png": "sample 3.png", "z__1.png": "z/1.png", "_sample 3.png": "z__1.png"}
    assert contents(tmp_path / "out") == {f"cluster_0/{name}": text for name, text in expected.items()}


def test_names_that_are_too_long_are_shortened_and_stay_apart(tmp_path: Path) -> None:
    folder = "/".join(letter * 64 for letter in "abcd")
    names = (f"{folder}/{'ü' * 100}.png", f"{folder}e/{'ü' * 100}.png", f"{folder}/1.png")
    named = {0: "\U00020000" * 80}  # a letter of four bytes
    for out in (tmp_path / "one", tmp_path / "two"):
        sort(tmp_path / "images", out, dict.fromkeys(names, 0), named)
        assert {Path(path).name for path in contents(out)} == {f"sample {n}.png" for n in (1, 2, 3)}
        assert sorted(contents(out).values()) == sorted(names)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.parametrize(
    ("name", "portable"),
    [
        ("Katzen \u732b \u0915\u093f \u0e01\u0e34", "Katzen \u732b \u0915\u093f \u0e01\u0e34"),
        ("e\u0301", "\u00e9"),
        ('a<b>c:d"e/f\\g|h?i*j', "a_b_c_d_e_f_g_h_i_j"),
        ("dots. . ", "dots"),
        ("..", ""),
        ("line\nfeed\x00\u202egnp", "line_feed__gnp"),
        ("CON", "_CON"),
        ("nul.txt", "_nul.txt"),
        ("com1", "_com1"),
        ("LPT\u00b3 .x", "_LPT\u00b3 .x"),
        ("console", "console"),
    ],
)
def test_a_name_is_one_on_every_system(name: str, portable: str) -> None:
    assert portable_name(name) == portable


@pytest.mark.parametrize(
    ("one", "other"), [("Cats", "cats"), ("caf\u00e9", "cafe\u0301"), ("STRASSE", "stra\u00dfe"), ("a", "a.")]
)
def test_names_that_some_systems_take_for_one_get_folders_and_files_of_their_own(
    tmp_path: Path, one: str, other: str
) -> None:
    files = {f"{one}.png": 0, f"x/{other}.png": 1, f"{other}.PNG": 0}
    sort(tmp_path / "images", tmp_path / "out", files, {0: one, 1: other})
    assert sorted(contents(tmp_path / "out").values()) == sorted(files)
    found = [path.name.casefold().rstrip(".") for path in (tmp_path / "out").glob("[!.]*")]
    assert len(set(found)) == K


def test_what_is_no_place_for_sorted_images_is_refused(tmp_path: Path) -> None:
    assert read_sorting(tmp_path / "new") is None
    (tmp_path / "disk" / "lost+found").mkdir(parents=True)
    assert read_sorting(tmp_path / "disk") is None
    write(tmp_path, "file")
    write(tmp_path, "used/mine.txt")
    for name, words in (
        ("file", "is a file: choose another"),
        ("used", "is not empty, but holds no sorted images"),
    ):
        with pytest.raises(InputError, match=words):
            read_sorting(tmp_path / name)


@pytest.mark.parametrize(
    "place", ["../x.png", "/etc/passwd", "a.png", "a/../x.png", "a/b/c.png", "a/..", ".a/b.png"]
)
def test_a_record_leads_to_no_place_outside(tmp_path: Path, place: str) -> None:
    record = {"format": "ucds-sorting/1", "model": "m", "pictures": {place: "00"}}
    (tmp_path / SORTING_FILE).write_text(json.dumps(record))
    with pytest.raises(DamagedFileError, match="is not a usable record of a sorting"):
        read_sorting(tmp_path)


def test_a_folder_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    images, out, elsewhere = tmp_path / "images", tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    sort(images, out, {"a.png": 0})
    (out / "cluster_1").rmdir()
    (out / "cluster_1").symlink_to(elsewhere)
    sort(images, out, {"a.png": 1, "b.png": 1})
    assert list(elsewhere.iterdir()) == []
    assert sorted(path.name for path in (out / "cluster_1_").iterdir()) == ["a.png", "b.png"]
