"""Fetches ONNX encoders from the Hugging Face hub, or takes them from its cache on this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ucds.encoders.preprocessor import PREPROCESSOR
from ucds.errors import InputError, brief, one_line

PREFIX = "hf:"
"""Start of the names of encoders that are repositories of the hub: ``hf:OWNER/NAME[@REVISION]``."""

CONFIG = "config.json"
GRAPHS = ("onnx/vision_model.onnx", "onnx/model.onnx", "vision_model.onnx", "model.onnx")
"""Places of a graph in a repository. The first that exists counts; if a model has
parts for images and texts, it is the part for images."""

_REVISION = re.compile(r"([\w-]+([./][\w-]+)*)?")
_PROBE_SECONDS = 6.0


@dataclass(frozen=True)
class Repository:
    """Files of an encoder on this machine."""

    preprocessor: Path  # says how images are prepared
    graph: Path
    revision: str = ""  # commit of the hub that the files belong to; empty for a folder of the user's own

    @property
    def config(self) -> Path:
        """File that describes the network, and need not exist."""
        return self.preprocessor.parent / CONFIG


def open_folder(folder: Path) -> Repository:
    """Find the files of an encoder in a folder that has the layout of a repository."""
    if not (folder / PREPROCESSOR).is_file():
        raise InputError(f"{folder} holds no {PREPROCESSOR}, which says how images are prepared")
    for name in GRAPHS:
        if (folder / name).is_file():
            return Repository(folder / PREPROCESSOR, folder / name)
    raise InputError(f"{folder} holds no ONNX graph: {' or '.join(GRAPHS)}")


def fetch_repository(name: str) -> Repository:
    """Find the files of an encoder in the hub's cache on this machine, or download them there.

    What is in the cache is used as it is. A name ``hf:OWNER/NAME@REVISION`` asks for another commit, tag or
    branch than the main one.
    """
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    malformed = InputError(f"{brief(name)} is not a repository: write hf:OWNER/NAME, or add @REVISION")
    if repository.count("/") != 1 or not _REVISION.fullmatch(revision):
        raise malformed
    try:
        cached = _cached(repository, revision or None)
    except ValueError:  # the hub's library knows which names there can be
        raise malformed from None
    return cached or _download(name, repository, revision or None)


def _cached(repository: str, revision: str | None) -> Repository | None:
    """Return the files in the hub's cache; ``None`` if any is missing."""
    from huggingface_hub import try_to_load_from_cache

    def path_of(file: str) -> Path | None:
        found = try_to_load_from_cache(repository, file, revision=revision)
        return Path(found) if isinstance(found, str) else None

    preprocessor = path_of(PREPROCESSOR)
    graph = next(filter(None, map(path_of, GRAPHS)), None)
    if preprocessor is None or graph is None:
        return None
    return Repository(preprocessor, graph, preprocessor.parent.name)


def _download(name: str, repository: str, revision: str | None) -> Repository:
    """Download the missing files, all from one commit."""
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    remedy = "copy the repository's files here, and give their folder as the encoder"
    if constants.HF_HUB_OFFLINE:
        raise InputError(f"{name} is not in the cache, but HF_HUB_OFFLINE forbids a download; {remedy}")
    require_reachable(constants.ENDPOINT, name, remedy)
    try:
        preprocessor = Path(hf_hub_download(repository, PREPROCESSOR, revision=revision))
        commit = preprocessor.parent.name
        for file in (CONFIG, *GRAPHS):
            try:
                path = Path(hf_hub_download(repository, file, revision=commit))
            except EntryNotFoundError:
                continue
            if file != CONFIG:
                return Repository(preprocessor, path, commit)
    except EntryNotFoundError:
        raise InputError(f"{name} holds no {PREPROCESSOR}, which says how images are prepared") from None
    except Exception as error:  # the hub's client raises its own errors besides OSError
        raise InputError(f"{name} cannot be downloaded: {one_line(error)}; {remedy}") from None
    raise InputError(f"{name} holds no ONNX graph: {' or '.join(GRAPHS)}")


def require_reachable(url: str, wanted: str, remedy: str) -> None:
    """Make sure that the server of a download gives any answer within a few seconds.

    The model hubs' own clients retry for half a minute before they give up, and print each try. The message
    says what was ``wanted``, and the remedy.
    """
    import httpx  # it takes a tenth of a second, which most commands need not wait for

    parts = urlsplit(url)
    server = f"{parts.scheme}://{parts.netloc}"
    try:
        httpx.head(server, timeout=_PROBE_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        reason = f"{wanted} is not in the cache, and {server} cannot be reached ({one_line(error)})"
        raise InputError(f"{reason}; {remedy}") from None
