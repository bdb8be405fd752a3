"""Names that a user chooses between, on the command line and in Python alike, and numbers of clusters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ucds.errors import InputError

Accelerator = Literal["auto", "cpu", "cuda"]
Precision = Literal["32-true", "bf16-mixed"]
Role = Literal["source", "target"]
"""Side of a model or of a run: the provider is the source, the client is the target."""
Tune = Literal["full", "head"]
Method = Literal["pcd", "consensus"]
"""The paper's method (``docs/paper.md``), or ours (``docs/consensus.md``)."""
METHODS: tuple[Method, ...] = get_args(Method)
Transfer = Literal["guarded", "own", "opinion", "equal"]
"""Use of a provider's labels: ``"guarded"`` lets the guard decide among the others."""
Space = Literal["features", "principal", "diffused-features", "diffused-principal"]
SPACES: tuple[Space, ...] = get_args(Space)
"""Names of the spaces in which a target is clustered, see :func:`ucds.math.spaces.make_spaces`."""
Sorting = Literal["copy", "link"]
"""Way in which images get into the folders of their clusters."""
ExportFormat = Literal["onnx", "sklearn", "hub"]
"""Form in which a model leaves: a graph of operations, a scikit-learn object, or a folder for a model hub."""
Engine = Literal["plain", "ray"]
"""What runs bulk work: a loop in this process, or workers of Ray."""

MOST_CLUSTERS = 100_000
"""Number of clusters that a model or labels of others may name: memory is reserved for each of them."""
DEFAULT_WEIGHTS, NO_WEIGHTS = "default", "none"
"""Words in place of a file of weights: published ones, or a random start."""

AUTO = "auto"
"""Word that asks for a number of clusters to be chosen among all that the samples allow."""


def require_choice(name: str, given: object, choices: Any) -> None:
    """Make sure that a word is one of those that a user chooses between; Python takes any.

    The choices are one of the ``Literal`` types of this module; the name is the argument's, for the message.

    Raises:
        InputError: it is another word.
    """
    if given not in get_args(choices):
        raise InputError(f"{name} must be one of {', '.join(get_args(choices))}, not {given!r}")


def require_weights(choice: str) -> None:
    """Make sure, before anything heavy is loaded, that weights are one of the words above or a file."""
    if choice not in (DEFAULT_WEIGHTS, NO_WEIGHTS) and not Path(choice).is_file():
        raise InputError(
            f"no weights file {choice}; give an existing file, 'default' or 'none' with --weights"
        )


@dataclass(frozen=True)
class ClusterRange:
    """Numbers of clusters among which one is to be chosen.

    Attributes:
        low: smallest number.
        high: largest number; ``None`` for as many as the samples allow.
    """

    low: int = 2
    high: int | None = None


def read_clusters(given: int | str, least: int = 1) -> int | ClusterRange:
    """Read a number of clusters, ``"auto"``, or a range such as ``"3..40"``.

    A number below ``least`` is refused; the estimators take 1, as scikit-learn has it.

    Raises:
        InputError: it is something else, a smaller number, or a range that is empty or begins below 2.
    """
    if isinstance(given, str) and given.strip() == AUTO:
        return ClusterRange()
    number = re.fullmatch(r"\s*(\d{1,9})\s*(?:\.\.\s*(\d{1,9})\s*)?", str(given))
    if number is None:
        raise InputError(
            f"a number of clusters is an integer, 'auto', or a range such as 3..40, not {given!r}"
        )
    low = int(number[1])
    if number[2] is None:
        if low < least:
            raise InputError(f"the number of clusters must be at least {least}")
        return low
    if not 2 <= low < int(number[2]):
        raise InputError(f"numbers of clusters {given}: a range goes from at least 2 up to a larger number")
    return ClusterRange(low, int(number[2]))
