"""Weights from a local file: read safely, matched key by key, refused in words when they do not fit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ucds.backbones.spec import one_line
from ucds.errors import InputError

StateDict = dict[str, Tensor]

# Wrappers that training scripts put around a state dict, most specific first.
WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model")

# Parts DataParallel, DistributedDataParallel and torch.compile insert into parameter names.
WRAPPER_SEGMENTS = frozenset({"module", "_orig_mod"})

# Classifiers and projection heads: a file may hold them, a backbone has no use for them. Any other key
# that the model lacks is refused, for a ResNet-34 file would otherwise pass for a ResNet-18.
CLASSIFIERS = frozenset(
    {"fc", "classifier", "head", "heads", "head_dist", "last_linear", "logits", "projection_head"}
    | {"prototypes", "AuxLogits", "aux1", "aux2"}
)


def load_file(
    module: nn.Module, path: Path, name: str, adapt: Callable[[StateDict], StateDict] | None = None
) -> str:
    """Loads a local checkpoint into a backbone.

    Args:
        module: The network, changed in place.
        path: A ``.safetensors`` file, or a state dict that ``torch.save`` wrote.
        name: The backbone's name, for errors.
        adapt: Converts the model family's older formats; tried if the file does not fit as it is.

    Returns:
        A description of what was loaded: file name and start of its SHA-256.

    Raises:
        UserError: If the file cannot be read, is no checkpoint, or does not fit the backbone.
    """
    state = without_wrapper_segments(read_state_dict(path), module.state_dict().keys())
    mismatch = find_mismatch(module, state)
    if mismatch and adapt is not None:
        try:
            adapted = adapt(dict(state))
        except Exception:  # a converter meets files it was not made for: report the file as it is
            adapted = state
        if not find_mismatch(module, adapted):
            state, mismatch = adapted, None
    if mismatch:
        raise InputError(
            f"{path} does not fit backbone '{name}': {mismatch.describe()}; "
            "give the file that belongs to this backbone, or the --backbone the file belongs to"
        )
    module.load_state_dict(state, strict=False)
    return f"file: {path.name} (sha256 {file_digest(path)[:12]})"


def read_state_dict(path: Path) -> StateDict:
    """Reads the tensors of a checkpoint file, by their names, without running any code it may hold.

    Raises:
        UserError: If there is no such file, it is no checkpoint, or it holds pickled code.
    """
    require_file(path)
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping):
        raise InputError(f"{path} holds a {type(content).__name__}, not a state dict of named weights")
    state = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if not state:
        keys = shortened([str(key) for key in content])
        raise InputError(f"{path} holds no weights (top-level keys: {keys or 'none'})")
    return state


def require_file(path: Path) -> None:
    """Refuses a path that is no file, before anything is built in vain."""
    if not path.is_file():
        raise InputError(f"no weights file {path}; give an existing file, 'default' or 'none' with --weights")


def _read_safetensors(path: Path) -> object:
    from safetensors import SafetensorError
    from safetensors.torch import load_file as load_safetensors

    try:
        return load_safetensors(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable safetensors file: {one_line(error)}") from error


def _read_pickle(path: Path) -> object:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load meets arbitrary bytes and raises nearly anything
        if "Unsupported global" in str(error) or "Unsupported class" in str(error):
            raise InputError(
                f"{path} holds pickled Python objects besides tensors, which could run code when opened; "
                "if you trust its origin, save its state dict alone (torch.save(model.state_dict(), FILE))"
            ) from error
        raise InputError(f"{path} is not a checkpoint that can be read: {one_line(error, 100)}") from error


def without_wrapper_segments(state: StateDict, expected: Collection[str]) -> StateDict:
    """Removes name parts that DataParallel or torch.compile added, unless the model has them itself."""
    own = {segment for key in expected for segment in key.split(".")}
    extra = WRAPPER_SEGMENTS - own
    return {".".join(part for part in key.split(".") if part not in extra): w for key, w in state.items()}


class Mismatch(NamedTuple):
    """Why a state dict does not fit: names of weights missing, unknown, and of another shape."""

    missing: list[str]
    unknown: list[str]
    reshaped: list[str]

    def describe(self) -> str:
        """The mismatch in words, at most three names of each kind."""
        kinds = [
            ("missing in the file", self.missing),
            ("unknown to the backbone", self.unknown),
            ("of another shape", self.reshaped),
        ]
        return "; ".join(f"{len(keys)} weights {kind} ({shortened(keys)})" for kind, keys in kinds if keys)


def find_mismatch(module: nn.Module, state: Mapping[str, Tensor]) -> Mismatch | None:
    """Compares a state dict with a model, key by key; ``None`` if it fits, classifier keys aside."""
    expected = module.state_dict()
    # Files from before PyTorch 0.4.1 count no batches; only cumulative averages, unused here, read the count.
    missing = [key for key in expected if key not in state and not key.endswith(".num_batches_tracked")]
    unknown = [key for key in state if key not in expected and key.split(".")[0] not in CLASSIFIERS]
    reshaped = [
        f"{key}: file {tuple(state[key].shape)}, backbone {tuple(expected[key].shape)}"
        for key in expected
        if key in state and state[key].shape != expected[key].shape
    ]
    return Mismatch(missing, unknown, reshaped) if missing or unknown or reshaped else None


def shortened(names: list[str], limit: int = 3) -> str:
    """The first few names, and how many more there are."""
    more = [f"{len(names) - limit} more"] if len(names) > limit else []
    return ", ".join(names[:limit] + more)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
