"""What the clusters of a run follow: found, told in the report and by the training, and refused in words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.errors import InputError
from ucds.target.followed import describe_followed, tell_followed, what_is_followed

K, N = 3, 120
CPU = ucds.Compute("cpu")


def about(seed: int = 2) -> dict[str, list[str]]:
    """Clusters are those of :func:`clusters`; scanner B made nearly all of cluster 1, and few others."""
    rng = np.random.default_rng(seed)
    scanner = np.where(clusters() == 1, rng.random(N) < 0.95, rng.random(N) < 0.1)
    return {
        "technician": [str(rng.choice(list("xyz"))) for _ in range(N)],
        "scanner": ["AB"[one] for one in scanner.astype(int)],
        "patient": [str(i // 4) for i in range(N)],
        "file": [f"{i}.png" for i in range(N)],
        "ward": ["7"] * N,
    }


def clusters() -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(N) % K


def test_the_column_the_clusters_and_the_value_are_named() -> None:
    found = what_is_followed(clusters(), about())
    assert [one.name for one in found if one.is_followed] == ["scanner"]
    assert {one.name for one in found} == {"technician", "scanner", "patient"}  # the others tell nothing
    assert found[0].clusters[0][:2] == (1, "B")
    said = describe_followed(found, "images")
    share, usual = found[0].clusters[0][2:]
    assert said.startswith(
        f"in cluster 1, {share:.0%} of the images have the scanner B; of all images, {usual:.0%}"
    )
    told = list[str]()
    tell_followed(clusters(), about(), None, told.append)
    assert told[0].startswith("the clusters follow 1 of 3 columns: scanner (0.")
    assert told[1] == describe_followed(found, "samples")
    assert share >= 0.9
    assert usual < 0.5


def test_where_nothing_is_followed_nothing_is_said() -> None:
    columns = {"technician": about()["technician"]}
    found = what_is_followed(clusters(), columns)
    assert describe_followed(found, "images") == ""
    told = list[str]()
    tell_followed(clusters(), columns, None, told.append)
    assert told == ["the clusters follow 0 of 1 columns"]
    assert what_is_followed(clusters(), {"ward": ["7"] * N}) == []


def test_of_numbers_the_middle_half_is_named() -> None:
    ages = [str(20 + i % 40 + 40 * (i % K == 2)) for i in range(N)]
    first = what_is_followed(clusters(), {"age": ages})[0].clusters[0]
    assert first.cluster == 2
    low, high = map(int, first.text.split(" to "))
    assert 60 <= low < high < 100
    assert first.share >= 0.5 > first.usual


def test_folders_are_told_of_only_where_nothing_else_is_clear() -> None:
    folders = [f"class {k}" for k in clusters()]
    both = what_is_followed(clusters(), {"folder": folders, "scanner": about()["scanner"]})
    assert "the scanner B" in describe_followed(both, "images")
    alone = describe_followed(what_is_followed(clusters(), {"folder": folders}), "images")
    assert "the folder class" in alone
    assert "before you rely on it" not in alone


def test_groups_that_cannot_be_tested_are_refused() -> None:
    with pytest.raises(InputError, match="3 groups of 'technician' are too few for a test"):
        what_is_followed(clusters(), about(), "technician")
    with pytest.raises(InputError, match="there is no column 'family' about the samples"):
        what_is_followed(clusters(), about(), "family")


@pytest.fixture
def samples(tmp_path: Path, blobs: Callable[..., dict[str, Any]]) -> Path:
    """Embeddings in clumps, and a table: scanner B made most of the first clump, and few others."""
    vectors = blobs({"a": N}, K)["a"]
    np.save(tmp_path / "x.npy", vectors)
    first = np.linalg.norm(vectors - vectors[0], axis=1)
    near = first < np.median(first) / 2
    rows = [f"{i},{'B' if near[i] else 'A'},{i // 4}" for i in range(N)]
    (tmp_path / "about.csv").write_text("\n".join(["id,scanner,patient", *rows]) + "\n")
    return tmp_path / "x.npy"


def test_the_training_and_the_report_tell_the_same(
    samples: Path, tmp_path: Path, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--about", samples.with_name("about.csv"), "--group", "patient", "--accelerator", "cpu")
    brief = ("--set", "starts=2", "--set", "bottleneck_width=8", "--clusters", K)
    assert run("train-target", samples, "--out", tmp_path / "run", *given, *brief) == 0
    told = capsys.readouterr().err
    assert "the clusters follow 1 of 1 columns: scanner" in told
    assert "of the samples have the scanner" in told
    page = (tmp_path / "run/report.html").read_text()
    assert f"open {tmp_path}/run/report.html in a browser" in told
    assert '"pictures":""' in page
    assert f"{N} samples in {K} clusters" in page
    assert 'id="followed"' in page
    assert "of the samples have the scanner" in page
    done = ucds.report(tmp_path / "run", about=samples.with_name("about.csv"), group="patient", compute=CPU)
    assert (tmp_path / "run/report.html").read_text() == page
    assert any("have the scanner" in line for line in done.summary)
    ucds.report(tmp_path / "run", compute=CPU)  # the run knows the table
    assert (tmp_path / "run/report.html").read_text() == page


def test_what_cannot_be_used_is_refused_before_any_work(samples: Path, tmp_path: Path) -> None:
    for given in ({"group": "family"}, {"centre_by": "site"}):
        with pytest.raises(InputError, match="there is no column '(family|site)'"):
            ucds.train_target(
                samples, tmp_path / "run", n_clusters=K, about=tmp_path / "about.csv", compute=CPU, **given
            )
        assert not (tmp_path / "run").exists()
