"""Loads weights of networks: downloads once, reads safely, matches key by key, refuses misfits."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from ucds.choices import require_weights
from ucds.encoders.hub import require_reachable
from ucds.errors import InputError, one_line
from ucds.networks.encoder import StateDict
from ucds.received import open_received, read_tensors

REMEDY = 'copy that file here and give it as `weights`, or ask for a random start with `weights="none"`'

# Wrappers that training scripts put around a state dict, most specific first.
WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model")

# Parts that DataParallel, DistributedDataParallel and torch.compile insert into parameter names.
WRAPPER_SEGMENTS = frozenset({"module", "_orig_mod"})

# Classifiers and projection heads: a file may hold them, a network has no use for them. Any other key
# that the model lacks is refused, for a ResNet-34 file would otherwise pass for a ResNet-18.
CLASSIFIERS = frozenset(
    {"fc", "classifier", "head", "heads", "head_dist", "last_linear", "logits", "projection_head"}
    | {"prototypes", "AuxLogits", "aux1", "aux2"}
)


def load_file(
    module: nn.Module, path: Path, name: str, adapt: Callable[[nn.Module, StateDict], StateDict] | None = None
) -> str:
    """Load a local checkpoint into a named network, and return the name and digest of the file.

    If the file does not fit, ``adapt`` tries to convert it from older formats of the model's family.
    """
    state = _without_wrapper_segments(read_state_dict(path), module.state_dict().keys())
    mismatch = _mismatch(module, state)
    if mismatch and adapt is not None:
        with suppress(Exception):  # a converter meets files it was not made for: report the file as it is
            adapted = adapt(module, dict(state))
            if not _mismatch(module, adapted):
                state, mismatch = adapted, ""
    if mismatch:
        raise InputError(
            f"{path} does not fit network '{name}': {mismatch}; "
            "give the file of this network, or the `backbone` of this file"
        )
    module.load_state_dict(state, strict=False)
    with path.open("rb") as file:
        return f"file: {path.name} (sha256 {hashlib.file_digest(file, 'sha256').hexdigest()[:12]})"


def download_weights(url: str, name: str) -> Path:
    """Download a checkpoint into PyTorch's hub cache, unless it is there already, and return its path."""
    file = Path(urlsplit(url).path).name
    path = Path(torch.hub.get_dir(), "checkpoints", file)
    if path.is_file():
        return path
    wanted = f"{file} (the weights of '{name}', from {url}, for the folder {path.parent})"
    require_reachable(url, wanted, REMEDY)
    path.parent.mkdir(parents=True, exist_ok=True)
    # PyTorch's file names carry the start of their SHA-256 after the last dash.
    digest = re.search(r"-([0-9a-f]{8,})$", path.stem)
    try:
        torch.hub.download_url_to_file(url, str(path), digest and digest[1], progress=False)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"cannot download {file}, the weights of '{name}', from {url}: {one_line(error)}; {REMEDY}"
        ) from error
    return path


def read_state_dict(path: Path) -> StateDict:
    """Read the tensors of a checkpoint file, by their names; a file that holds pickled code is refused."""
    require_weights(str(path))
    content = _read(path)
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping):
        raise InputError(f"{path} holds a {type(content).__name__}, not a state dict of named weights")
    state = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if not state:
        keys = _first_few([str(key) for key in content])
        raise InputError(f"{path} holds no weights (top-level keys: {keys or 'none'})")
    return state


def _read(path: Path) -> object:
    try:
        if path.suffix == ".safetensors":
            return read_tensors(path.resolve(), "pt")[0]
        with open_received(path, follow=True) as file:
            return load_pickle(file)
    except Exception as error:  # torch.load meets arbitrary bytes and raises nearly anything
        if "Unsupported global" in str(error) or "Unsupported class" in str(error):
            raise InputError(
                f"{path} holds pickled Python objects besides tensors, which could run code when opened; "
                "if you trust its origin, save its state dict alone (torch.save(model.state_dict(), FILE))"
            ) from error
        raise InputError(f"{path} is not a readable checkpoint: {one_line(error, 100)}") from error


def load_pickle(file: IO[bytes]) -> object:
    """Read what ``torch.save`` wrote, without running any code that it may hold."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:  # which PyTorch never packs
            held = sum(entry.file_size for entry in archive.infolist())
        if held > file.seek(0, 2):
            raise ValueError("it names more tensors than it holds")
    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)


def _without_wrapper_segments(state: StateDict, expected: Collection[str]) -> StateDict:
    """Remove name parts that DataParallel or torch.compile added, unless the model itself has them."""
    extra = WRAPPER_SEGMENTS - {segment for key in expected for segment in key.split(".")}
    return {".".join(part for part in key.split(".") if part not in extra): w for key, w in state.items()}


def _mismatch(module: nn.Module, state: Mapping[str, Tensor]) -> str:
    """Name the weights that do not fit a model, a few of each kind; empty if all but classifiers fit."""
    expected = module.state_dict()
    kinds = {
        # Files from before PyTorch 0.4.1 count no batches; only cumulative averages, unused here, need it.
        "missing in the file": [
            key for key in expected if key not in state and not key.endswith(".num_batches_tracked")
        ],
        "unknown to the network": [
            key for key in state if key not in expected and key.split(".")[0] not in CLASSIFIERS
        ],
        "of another shape": [
            f"{key}: file {tuple(state[key].shape)}, network {tuple(weight.shape)}"
            for key, weight in expected.items()
            if key in state and state[key].shape != weight.shape
        ],
    }
    return "; ".join(
        f"{len(keys)} weights {kind} ({_first_few(keys)})" for kind, keys in kinds.items() if keys
    )


def _first_few(names: list[str]) -> str:
    more = [f"{len(names) - 3} more"] if len(names) > 3 else []
    return ", ".join(names[:3] + more)
