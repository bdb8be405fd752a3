"""Image files are read, or refused with the reason; work goes on ahead of its use, in order."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from ucds.data import image_files
from ucds.data.decode import UnusableImageError
from ucds.data.image_files import map_ahead, read_image_bytes


def test_special_files_are_refused(tmp_path):
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "dangling.jpg").symlink_to("nowhere")
    (tmp_path / "circle.jpg").symlink_to("circle.jpg")
    for name, reason in {
        "empty": "empty file",
        "folder": "not a regular file",
        "pipe": "not a regular file",
        "dangling": "cannot be read",
        "circle": "cannot be read",
        "missing": r"cannot be read \(No such file",
    }.items():
        with pytest.raises(UnusableImageError, match=rf"{name}\.jpg: {reason}"):
            read_image_bytes(tmp_path / f"{name}.jpg")


def test_a_file_that_may_not_be_read_or_is_too_large(tmp_path, monkeypatch):
    path = tmp_path / "x.jpg"
    path.write_bytes(b"some content")
    monkeypatch.setattr(image_files, "MAX_FILE_BYTES", 10)
    with pytest.raises(UnusableImageError, match="too large a file"):
        read_image_bytes(path)

    def refuse(*_):  # file modes would not stop a test run by root
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(image_files.os, "stat", refuse)
    with pytest.raises(UnusableImageError, match=r"x\.jpg: cannot be read \(Permission denied\)"):
        read_image_bytes(path)


def test_results_come_in_order_and_few_wait():
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        return -item

    with ThreadPoolExecutor(2) as pool:
        results = map_ahead(pool, work, range(30), 4)
        assert next(results) == 0
        assert max(begun) < 4
        assert list(results) == [-item for item in range(1, 30)]
