"""Asks quickly whether a download can work at all, so that an offline machine gets an answer, not a wait."""

from __future__ import annotations

import ssl
import threading
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from ucds.backbones.spec import one_line
from ucds.errors import InputError

PROBE_SECONDS = 6.0
REMEDY = "give a local file with --weights FILE, or ask for a random start with --weights none"


def require_reachable(url: str, wanted: str, remedy: str = REMEDY) -> None:
    """Checks that the server of a download answers, whatever its answer.

    The model hubs' own clients retry for most of a minute before they give up, and print each try.

    Args:
        url: The address of the download, or of its server.
        wanted: What is to be downloaded, for the error.
        remedy: What to do if it cannot be, for the error.

    Raises:
        UserError: If the server does not answer within a few seconds.
    """
    parts = urlsplit(url)
    server = f"{parts.scheme}://{parts.netloc}"
    reason = _why_unreachable(server)
    if reason is not None:
        raise InputError(f"{wanted}: not in the cache, and {server} cannot be reached ({reason}); {remedy}")


def _why_unreachable(server: str) -> str | None:
    outcome: list[str | None] = []
    # A thread, because neither name look-up nor a list of dead addresses honours a socket's timeout.
    probe = threading.Thread(target=lambda: outcome.append(_probe(server)), daemon=True)
    probe.start()
    probe.join(PROBE_SECONDS)
    return outcome[0] if outcome else f"no answer in {PROBE_SECONDS:.0f} seconds"


def _probe(server: str) -> str | None:
    request = urllib.request.Request(server, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=PROBE_SECONDS):
            return None
    except urllib.error.HTTPError:
        return None  # an answer, and the download has its own address and credentials
    except urllib.error.URLError as error:
        # The hub's client may trust a certificate of the organisation that this one does not know.
        trust_only = isinstance(error.reason, ssl.SSLCertVerificationError)
        return None if trust_only else str(getattr(error.reason, "strerror", None) or error.reason)
    except (OSError, ValueError) as error:
        return one_line(error)


def download_state_dict(url: str, name: str) -> Path:
    """Downloads a checkpoint into PyTorch's hub cache, unless it lies there already.

    Args:
        url: The address of the file.
        name: The backbone's name, for errors.

    Returns:
        The cached file.

    Raises:
        UserError: If it is not cached and cannot be downloaded.
    """
    import torch

    path = Path(torch.hub.get_dir(), "checkpoints", Path(urlsplit(url).path).name)
    if path.is_file():
        return path
    require_reachable(url, f"pre-trained weights of '{name}'")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(url, str(path), hash_prefix=_hash_prefix(path.stem), progress=False)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"cannot download the weights of '{name}' from {url}: {one_line(error)}; {REMEDY}"
        ) from error
    return path


def _hash_prefix(stem: str) -> str | None:
    """The start of the SHA-256 that PyTorch's file names carry after their last dash, if they do."""
    _, dash, suffix = stem.rpartition("-")
    is_hash = len(suffix) >= 8 and all(digit in "0123456789abcdef" for digit in suffix)
    return suffix if dash and is_hash else None
