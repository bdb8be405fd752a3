"""Which files of a tree become samples, and which of its folders are classes."""

import os
import re
import sys

import numpy as np
import pytest

from ucds.data.content import texts_of
from ucds.data.folders import Scan, scan_domains, scan_folder
from ucds.data.ground_truth import read_ground_truth
from ucds.errors import UcdsWarning, UserError

pytestmark = pytest.mark.filterwarnings("error::ucds.errors.UcdsWarning")


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_images_at_any_depth_in_a_fixed_order(tmp_path):
    touch(
        tmp_path, "b/x.jpg", "b/deep/er/still/y.PNG", "a/10.jpg", "a/9.jpeg", "a/c/z.tiff", "b/odd.jpg/z.png"
    )
    touch(tmp_path, "b/notes.txt", "a/Thumbs.db", "a/._x.jpg", "a/.cache/y.jpg", ".git/z.jpg")
    scan = scan_domains(tmp_path)
    assert scan.domain_names == ("a", "b")
    of_b = ("b/deep/er/still/y.PNG", "b/odd.jpg/z.png", "b/x.jpg")
    assert scan.ids == ("a/10.jpg", "a/9.jpeg", "a/c/z.tiff", *of_b)
    assert scan.domain.tolist() == [0, 0, 0, 1, 1, 1]
    assert scan.domain.dtype == np.int64
    of_a = scan_folder(tmp_path / "a")
    assert (of_a.domain_names, of_a.ids) == (("a",), ("10.jpg", "9.jpeg", "c/z.tiff"))


def test_chosen_domains(tmp_path):
    touch(tmp_path, "a/x.jpg", "b/x.jpg", "c/x.jpg")
    assert scan_domains(tmp_path, ["c", "a"]).domain_names == ("a", "c")
    with pytest.raises(UserError, match=r"no domain 'd', 'e'; it has 'a', 'b', 'c'"):
        scan_domains(tmp_path, ["a", "e", "d"])
    with pytest.raises(UserError, match="no domain"):
        scan_domains(tmp_path, [])


def test_a_wrapper_folder_is_stepped_into(tmp_path):
    touch(tmp_path, "kfold/photo/dog/x.jpg", "kfold/sketch/dog/y.jpg")
    scan = scan_domains(tmp_path)
    assert scan.domain_names == ("photo", "sketch")
    assert scan.ids == ("kfold/photo/dog/x.jpg", "kfold/sketch/dog/y.jpg")
    assert scan_domains(tmp_path, ["sketch"]).domain_names == ("sketch",)


@pytest.mark.parametrize(
    "names",
    [
        ("webcam/bike/x.jpg", "webcam/mug/y.jpg"),
        ("webcam/images/bike/x.jpg", "webcam/images/mug/y.jpg"),
        ("webcam/x.jpg", "webcam/more/a/y.jpg"),
    ],
)
def test_a_lone_domain_is_no_wrapper(tmp_path, names):
    touch(tmp_path, *names)
    assert scan_domains(tmp_path).domain_names == ("webcam",)
    assert scan_domains(tmp_path, ["webcam"]).domain_names == ("webcam",)


def test_unusable_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match="no folder"):
        scan_domains(tmp_path / "none")
    touch(tmp_path, "file.jpg")
    with pytest.raises(UserError, match="neither a folder"):
        scan_domains(tmp_path / "file.jpg")
    with pytest.raises(UserError, match="no domain folders"):
        scan_domains(tmp_path)
    touch(tmp_path, "empty/a/x.txt", "empty/b/x.txt")
    with pytest.raises(UserError, match=r"There are no images in 'a', 'b'.*\.jpg"):
        scan_domains(tmp_path / "empty")
    with pytest.raises(UserError, match=r"There are no images in .*empty"):
        scan_folder(tmp_path / "empty")


def test_what_is_left_out_is_mentioned(tmp_path):
    touch(tmp_path, "a/x.png", "b/y.png", "splits/train.txt", "loose.jpg", "loose.png")
    touch(tmp_path, "a/1.PSD", "a/2.psd", "b/3.cr2", "b/.hidden.psd", "b/notes.txt")
    with pytest.warns(UcdsWarning) as told:
        assert scan_domains(tmp_path).ids == ("a/x.png", "b/y.png")
    loose, unread, empty = (str(one.message) for one in told)
    assert "lie directly in" in loose
    assert "have no domain: 2 left out" in loose
    assert re.search(r"ucds cannot read are left out: 1 \.cr2 \(convert .*\), 2 \.psd \(convert", unread)
    assert "splits holds no images" in empty
    with pytest.warns(UcdsWarning), pytest.raises(UserError, match="There are no images in 'splits'"):
        scan_domains(tmp_path, ["a", "splits"])


def test_links_are_followed_and_loops_end(tmp_path):
    touch(tmp_path, "data/a/sub/x.jpg", "data/b/y.jpg", "elsewhere/z.jpg")
    data = tmp_path / "data"
    (data / "a" / "loop").symlink_to(data / "a")
    (data / "a" / "sub" / "up").symlink_to(data)
    (data / "a" / "self").symlink_to(data / "a" / "self")
    (data / "b" / "outside").symlink_to(tmp_path / "elsewhere")
    (data / "b" / "broken.jpg").symlink_to(tmp_path / "nowhere.jpg")
    scan = scan_domains(data)
    assert [i for i in scan.ids if i.startswith("b/")] == ["b/broken.jpg", "b/outside/z.jpg", "b/y.jpg"]
    assert sum(i.endswith("x.jpg") for i in scan.ids) == 1
    assert len(scan) < 10


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_mentioned(tmp_path):
    touch(tmp_path, "a/x.jpg", "a/locked/y.jpg", "b/z.jpg")
    (tmp_path / "a" / "locked").chmod(0)
    with pytest.warns(UcdsWarning, match="locked cannot be read"):
        assert scan_domains(tmp_path).ids == ("a/x.jpg", "b/z.jpg")
    (tmp_path / "a" / "locked").chmod(0o755)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_not_utf8_get_ids_that_are(tmp_path):
    touch(tmp_path, "a/über.jpg", "b/y.jpg")
    raw = os.fsencode(tmp_path / "a") + b"/caf\xe9.jpg"
    os.close(os.open(raw, os.O_CREAT))
    scan = scan_domains(tmp_path)
    assert set(scan.ids) == {"a/caf\\xe9.jpg", "a/über.jpg", "b/y.jpg"}
    "".join(scan.ids).encode("utf-8")
    assert all((tmp_path / path).exists() for path in scan.paths)


def scan_of(*domains: tuple[str, list[str]]) -> Scan:
    paths = texts_of([path for _, paths in domains for path in paths])
    domain = np.repeat(np.arange(len(domains)), [len(paths) for _, paths in domains])
    return Scan(None, paths, domain, tuple(name for name, _ in domains))


def classes(*domains: tuple[str, list[str]]) -> list[str] | None:
    truth = read_ground_truth(scan_of(*domains))
    if truth is None:
        return None
    assert list(truth.names) == sorted(set(truth.names))
    assert truth.n_classes == len(truth.names)
    return [truth.names[k] for k in truth.classes]


@pytest.mark.parametrize(
    ("domains", "expected"),
    [
        pytest.param([("a", ["a/images/bike/x", "a/images/mug/x"])], ["bike", "mug"], id="wrapper below"),
        pytest.param([("a", ["kfold/a/dog/x", "kfold/a/cat/x"])], ["dog", "cat"], id="wrapper above"),
        pytest.param([("a", ["a/bike/9/x", "a/mug/x", "a/mug/8/x"])], ["bike", "mug", "mug"], id="deeper"),
        pytest.param([("clinic", ["bike/x", "mug/x"])], ["bike", "mug"], id="one folder"),
        pytest.param([("clinic", ["images/bike/x", "images/mug/x"])], ["bike", "mug"], id="one wrapper"),
        pytest.param(
            [("a", ["a/mug/x", "a/pen/x"]), ("b", ["b/bike/x", "b/pen/x"]), ("c", ["c/pen/x", "c/pen/y"])],
            ["mug", "pen", "bike", "pen", "pen", "pen"],
            id="shared by name, not by place",
        ),
        pytest.param([("a", ["a/x", "a/y"]), ("b", ["b/x"])], None, id="no folders"),
        pytest.param([("a", ["a/images/x"]), ("b", ["b/images/x"])], None, id="wrappers only"),
        pytest.param([("clinic", ["x", "y"])], None, id="one folder, no classes"),
    ],
)
def test_classes_are_the_folders_below_the_domains(domains, expected):
    assert classes(*domains) == expected


def test_files_beside_the_class_folders():
    assert read_ground_truth(scan_of(("a", ["a/bike/x.jpg", "a/mug/x.jpg", "a/loose.jpg"]))) is None
