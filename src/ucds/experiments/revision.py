"""Names the revision of the code, without loading PyTorch: scripts that measure memory import this."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path


@cache
def code_revision() -> str:
    """Return the commit of this package, with "-dirty" if a file of the package has changed since.

    It is looked up once, because a process keeps the code that it has loaded. The result is "unknown" without
    git, and for a package that is installed inside a repository but not tracked by it.
    """
    file = Path(__file__)
    package = file.parents[1]

    def git(*arguments: str) -> str:
        # A look that is killed must leave no lock of the index: nobody could make a commit then.
        command = ["git", "--no-optional-locks", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "--", str(file.relative_to(package)))
        changed = git("status", "--porcelain", "--", ".")
        return git("describe", "--always", "--abbrev=12") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
