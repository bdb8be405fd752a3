"""Downloads of weights, which tell an offline machine at once that they cannot work."""

from __future__ import annotations

import re
import ssl
import threading
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from ucds.errors import InputError, one_line

PROBE_SECONDS = 6.0
REMEDY = "give a local file with --weights FILE, or ask for a random start with --weights none"


def require_reachable(url: str, wanted: str, remedy: str = REMEDY) -> None:
    """Make sure that the server of a download answers, whatever its answer.

    The model hubs' own clients retry for most of a minute before they give up, and print each try.

    Args:
        url: address of the download, or of its server.
        wanted: name of what is to be downloaded, for the error.
        remedy: advice for a user without it, for the error.

    Raises:
        InputError: the server does not answer within a few seconds.
    """
    parts = urlsplit(url)
    server = f"{parts.scheme}://{parts.netloc}"
    outcome: list[str | None] = []
    # A thread, because neither name look-up nor a list of dead addresses honours a socket's timeout.
    probe = threading.Thread(target=lambda: outcome.append(_probe(server)), daemon=True)
    probe.start()
    probe.join(PROBE_SECONDS)
    reason = outcome[0] if outcome else f"no answer in {PROBE_SECONDS:.0f} seconds"
    if reason is not None:
        raise InputError(f"{wanted}: not in the cache, and {server} cannot be reached ({reason}); {remedy}")


def _probe(server: str) -> str | None:
    """Return the reason why a server does not answer, ``None`` if it does."""
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
    """Download a checkpoint into PyTorch's hub cache, unless it lies there already, and return its path.

    Args:
        url: address of the file.
        name: name of the backbone, for errors.

    Raises:
        InputError: the file is not cached and cannot be downloaded.
    """
    import torch

    path = Path(torch.hub.get_dir(), "checkpoints", Path(urlsplit(url).path).name)
    if path.is_file():
        return path
    require_reachable(url, f"pre-trained weights of '{name}'")
    path.parent.mkdir(parents=True, exist_ok=True)
    # PyTorch's file names carry the start of their SHA-256 after the last dash.
    digest = re.search(r"-([0-9a-f]{8,})$", path.stem)
    try:
        torch.hub.download_url_to_file(url, str(path), digest and digest[1], progress=False)
    except (OSError, RuntimeError) as error:
        reason = f"cannot download the weights of '{name}' from {url}: {one_line(error)}"
        raise InputError(f"{reason}; {REMEDY}") from error
    return path
