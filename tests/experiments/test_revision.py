import subprocess
from pathlib import Path

import pytest

from ucds.experiments import revision

pytestmark = pytest.mark.torch


def find_revision() -> str:
    """Look the revision up, whatever was found before."""
    return revision.code_revision.__wrapped__()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package without history, which names its own revision."""
    folder = tmp_path / "package"
    (folder / "experiments").mkdir(parents=True)
    for name in ("code.py", "experiments/revision.py"):
        (folder / name).write_text("x = 1\n")
    monkeypatch.setattr(revision, "__file__", str(folder / "experiments" / "revision.py"))
    return folder


def git(package: Path, *arguments: str) -> str:
    told = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    return subprocess.run(told, cwd=package.parent, check=True, capture_output=True, text=True).stdout


def test_a_package_outside_of_git_or_that_the_repository_around_it_does_not_track_has_no_revision(
    package: Path,
) -> None:
    assert find_revision() == "unknown"
    git(package, "init", "-q")
    (package.parent / ".gitignore").write_text("package/\n")
    git(package, "add", ".")
    git(package, "commit", "-qm", "a user's own work")
    assert find_revision() == "unknown"


def test_a_revision_is_a_commit_and_whether_the_package_has_changed_since(package: Path) -> None:
    git(package, "init", "-q")
    git(package, "add", ".")
    git(package, "commit", "-qm", "one")
    commit, index = git(package, "rev-parse", "HEAD")[:12], package.parent / ".git" / "index"
    (package / "code.py").touch()  # a plain look would note the new time in the index, and lock it to do so
    before = index.read_bytes()
    assert find_revision() == commit
    assert index.read_bytes() == before
    (package.parent / "notes.txt").touch()
    assert find_revision() == commit
    (package / "code.py").write_text("x = 2\n")
    assert find_revision() == f"{commit}-dirty"
