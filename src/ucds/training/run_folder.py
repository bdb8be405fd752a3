"""The folder of a training run, safe against crashes, second starts and mix-ups of runs.

| file | holds |
| --- | --- |
| `run.json` | the run: role, settings, data and its place, versions |
| `labels.json` | the provider's labels, if a target run was given any |
| `clusters.json` | the evidence for the number of clusters, if ucds chose it |
| `stability.json` | how far the clusters of a target depend on chance, with the method `consensus` |
| `transfer.json` | how the provider's labels were used, and why |
| `votes.npz` | the start of a review: ids, content keys, partitions that voted, averaged labels, clusters |
| `about.npz` | the columns of `--about` and `--group`, by the content keys of the samples |
| `centres.npz` | the means of the groups of `--centre-by` |
| `features.npy` | bottleneck features of the samples that were clustered |
| `.map.npz` | places of these samples on the page's map, once it was drawn |
| `log.jsonl` | one line a logged step or evaluation |
| `checkpoint.npz` | clusters that an unfinished run of the method `consensus` has found |
| `checkpoint.pt` | the state of an unfinished run that learns by gradients |
| `model.safetensors` | the result, written last |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ucds.errors import DamagedFileError, InputError, brief
from ucds.files import (
    lock,
    make_private,
    parse_json,
    read_object,
    refuse_inside,
    require_writable,
    sweep,
    write_text_atomically,
    writing,
)
from ucds.received import open_received, read_text

if TYPE_CHECKING:
    from ucds.data.sources import Source

RUN_FILE = "run.json"
LABELS_FILE = "labels.json"
CLUSTERS_FILE = "clusters.json"
STABILITY_FILE = "stability.json"
TRANSFER_FILE = "transfer.json"
VOTES_FILE, FEATURES_FILE = "votes.npz", "features.npy"
CENTRES_FILE, ABOUT_FILE, MAP_FILE = "centres.npz", "about.npz", ".map.npz"
LOG_FILE = "log.jsonl"
MODEL_FILE = "model.safetensors"
ARRAYS_FILE, CHECKPOINT_FILE = "checkpoint.npz", "checkpoint.pt"

EARLY_FILES = (
    *(RUN_FILE, LABELS_FILE, CENTRES_FILE, CLUSTERS_FILE, STABILITY_FILE, TRANSFER_FILE),
    *(VOTES_FILE, FEATURES_FILE, ABOUT_FILE),
)
"""Files that a run may write before its first checkpoint, besides its log."""

RUN_FILES = (
    *EARLY_FILES,
    LOG_FILE,
    MODEL_FILE,
    ARRAYS_FILE,
    CHECKPOINT_FILE,
    "answers.jsonl",
    "names.json",
)
"""Files of a run, which no other output may replace."""

RUN_FORM = {
    **dict.fromkeys(("images", "data", "method"), str | None),
    **dict.fromkeys(("reviewed", "earlier"), list | None),
    "seed": int | None,
    "settings": {"most_samples": int | None},
    "update": {"sentences": list | None},
    "versions": {},
}
"""Kinds of the entries of run.json that are used again."""

_VOLATILE = frozenset({"versions", "images"})
"""Entries of run.json that may differ between the first start and a resumed one."""


class RunFolder:
    """One run on disk, held by one process (or one group of processes) at a time; :meth:`open` makes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None
        self._fresh = False

    def open(self, identity: dict[str, Any], *, resume: bool) -> None:
        """Take possession of the folder for a run; to resume a run, the folder must hold it.

        The identity is everything that a resumed run must share, and the versions.
        """
        make_private(self.path)
        occupied = self._is_occupied(resume)
        with writing(self.path / ".lock"):
            self._lock = open_received(self.path / ".lock", "a+b")
            if not lock(self._lock):
                raise InputError(f"another process is training in {self.path}")
        sweep(self.path)
        if occupied:
            self.refuse_other_run(identity)
        else:
            write_text_atomically(self.path / RUN_FILE, json.dumps(identity, indent=2) + "\n")
            self._fresh = True

    def require_free(self, inputs: Path | None = None) -> None:
        """Make sure, before any work, that the folder is free; see :meth:`require_usable`."""
        if self._holds_something():
            raise InputError(f"{self.path} is not empty: choose another `out`")
        self.require_usable(inputs, resume=False)

    def require_usable(self, inputs: Path | None, *, resume: bool) -> None:
        """Make sure, before any work, that the folder is free or holds a run that may be resumed.

        It must not lie inside the inputs, the folder or file of the samples; ``None`` if they are in memory.
        """
        if inputs is not None:
            refuse_inside(self.path, inputs)
        self._is_occupied(resume)
        require_writable(self.path / RUN_FILE)

    def _holds_something(self) -> bool:
        # Hidden files are the lock, and what a crash left of a description never finished.
        return self.path.is_dir() and any(not e.name.startswith(".") for e in self.path.iterdir())

    def _is_occupied(self, resume: bool) -> bool:
        """Return whether the folder holds a run to resume; refuse a folder that is neither this nor free."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file: choose another `out`")
        occupied = self._holds_something()
        if occupied and not resume:
            raise InputError(f"{self.path} is not empty: choose another `out`, or use `resume=True`")
        if occupied and not (self.path / RUN_FILE).exists():
            raise InputError(f"{self.path} holds no run to resume: choose another `out`")
        return occupied

    def refuse_other_run(self, identity: dict[str, Any]) -> None:
        """Make sure that the folder holds the described run; the error names the first difference."""
        path = self.path / RUN_FILE
        before: Any = None
        with suppress(OSError, ValueError):
            before = parse_json(read_text(path))
        if not isinstance(before, dict):
            raise DamagedFileError(f"{path} is damaged: choose another `out`")
        key, now = "", json.loads(json.dumps(identity))
        while isinstance(before, dict) and isinstance(now, dict):  # down to the first entry that differs
            names = sorted((before.keys() | now.keys()) - (_VOLATILE if not key else set()))
            name = next((name for name in names if before.get(name) != now.get(name)), None)
            if name is None:
                return
            key, before, now = f"{key}.{name}".lstrip("."), before.get(name), now.get(name)
        if key == "data":
            raise InputError(
                f"{self.path} holds a run on other samples, or some samples have changed: choose another "
                "`out`, or add what is new by `ucds update`"
            )
        raise InputError(
            f"{self.path} holds another run: its {key} is {brief(before)}, not {brief(now)}; choose another "
            "`out`"
        )

    def abandon(self) -> None:
        """Remove all files of a run that failed before its first checkpoint."""
        if not self._fresh or self.has_checkpoint():
            return
        for name in (*EARLY_FILES, LOG_FILE, ".lock"):
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    def close(self) -> None:
        """Let other processes use the folder."""
        if self._lock is not None:
            self._lock.close()

    def has_checkpoint(self) -> bool:
        """Return whether the folder holds a checkpoint, damaged or not."""
        return any((self.path / name).exists() for name in (ARRAYS_FILE, CHECKPOINT_FILE))

    def drop_checkpoint(self) -> None:
        """Remove the checkpoint, once the result is written."""
        for name in (ARRAYS_FILE, CHECKPOINT_FILE):
            (self.path / name).unlink(missing_ok=True)


def files_read(run: Path | None, *sources: Source | None) -> list[Path]:
    """List the files that a command reads, except images, so that no output replaces them."""
    from ucds.data.sources import is_plain_folder, place_of  # here, because help need not wait for them

    places = [place for source in sources if source is not None and (place := place_of(source)) is not None]
    inside = [path for place in places if not is_plain_folder(place) for path in place.rglob("*")]
    return [*places, *inside, *([] if run is None else map(run.joinpath, RUN_FILES))]


def place_of_output(
    run: Path,
    name: str,
    out: str | Path | None,
    suffixes: Sequence[str],
    *sources: Source | None,
    needed: int = 0,
) -> Path:
    """Return the path that an output of a finished run is written to, or refuse it.

    It has the name in the folder of the run, or is the file ``out`` that a user named, which must end in one
    of the suffixes. It must not replace what is read, the further ``sources`` included. If it is known how
    many bytes are ``needed``, there must be room for them.
    """
    if out is not None:
        return require_writable(Path(out), *suffixes, inputs=files_read(run, *sources), needed=needed)
    require_writable(
        run / RUN_FILE, needed=needed
    )  # a link under the name of the output is replaced, and not followed
    return run / name


def read_run(run: Path) -> dict[str, Any]:
    """Read the description of a run; empty if there is none."""
    return read_object(run / RUN_FILE, RUN_FORM) or {}


def require_model(run: Path) -> Path:
    """Return the path of a run's model file, which must exist; the file is not read."""
    path = run / MODEL_FILE
    if not path.exists():
        if (run / RUN_FILE).exists():
            raise InputError(f"the run in {run} is not finished: continue it with `resume=True`")
        raise InputError(f"{run} is not a run folder: it holds no {MODEL_FILE}")
    return path
