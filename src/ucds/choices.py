"""Values that users choose between, on the command line and in Python: names, and numbers of clusters.

Parameters of the consensus method that users do not set stand here too: benchmarks vary them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from ucds.errors import InputError, brief

if TYPE_CHECKING:
    from pydantic import ConfigDict

Accelerator = Literal["auto", "cpu", "cuda", "mps"]
"""Device for networks; ``"mps"`` is the GPU of a Mac, and ``"auto"`` the best that is there."""
GPUS: tuple[Accelerator, ...] = ("cuda", "mps")
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
"""Way to put images into the folders of their clusters."""
TableForm = Literal["csv", "parquet"]
"""Form of the table of a review: for Excel, or for programs."""
ExportFormat = Literal["onnx", "sklearn", "hub"]
"""Form in which a model is exported: an ONNX graph, a scikit-learn object, or a folder for a model hub."""
Pooling = Literal["class", "mean"]
"""Rule that makes features of an image from those of its tokens: the first token, or the mean of all."""
Engine = Literal["plain", "ray"]
"""Engine that runs bulk work: a loop in this process, or workers of Ray."""

MOST_CLUSTERS = 100_000
"""Largest number of clusters in another party's model or labels: memory is reserved for each cluster."""
DEFAULT_WEIGHTS, NO_WEIGHTS = "default", "none"
"""Words in place of a file of weights: published ones, or a random start."""

LARGEST_INPUT = 1024
"""Side in pixels of the largest crop: a batch of such images fills some gigabytes."""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of each colour, of pixels in 0..1, unless an encoder asks for others."""

AUTO = "auto"
"""Word that asks ucds to choose the number of clusters, among all numbers that the samples allow."""


def require_weights(choice: str) -> None:
    """Make sure, before loading anything heavy, that weights are one of the words above or a file."""
    if choice not in (DEFAULT_WEIGHTS, NO_WEIGHTS) and not Path(choice).is_file():
        raise InputError(f"there is no weights file {choice}: give another file, 'default' or 'none'")


def require_input_size(size: int | None) -> None:
    """Refuse a side of the square crop of images that no encoder takes or that would fill the memory."""
    if size is not None and not 1 <= size <= LARGEST_INPUT:
        raise InputError(f"an encoder's input size is 1 to {LARGEST_INPUT} pixels, not {size}")


@dataclass(frozen=True)
class ClusterRange:
    """Range of numbers of clusters among which ucds chooses one."""

    low: int = 2  # smallest number
    high: int | None = None  # largest number; `None` for as many as the samples allow


def read_clusters(given: int | str, least: int = 1) -> int | ClusterRange:
    """Read a number of clusters, ``"auto"``, or a range such as ``"3..40"``.

    A number below ``least`` is refused; the estimators take 1, as scikit-learn has it.
    """
    if isinstance(given, str) and given.strip() == AUTO:
        return ClusterRange()
    number = re.fullmatch(r"\s*(\d{1,9})\s*(?:\.\.\s*(\d{1,9})\s*)?", str(given))
    if number is None:
        raise InputError(
            f"a number of clusters is an integer, 'auto', or a range such as 3..40, not {brief(given)}"
        )
    low = int(number[1])
    if number[2] is None:
        if low < least:
            raise InputError(f"the number of clusters must be at least {least}")
        return low
    if not 2 <= low < int(number[2]):
        raise InputError(f"the range {given} cannot be used: begin at 2 or more, and end at a larger number")
    return ClusterRange(low, int(number[2]))


@dataclass(frozen=True)
class VoteChoices:
    """Parameters of the vote of k-means; ``docs/measurements.md`` says on which tasks they were chosen."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    # Multiples of K. Partitions into more clusters split large groups in different places and keep small ones
    # whole: what all put together depends little on single starts, most of which are poor when K is small.
    fineness: tuple[float, ...] = (1.0, 1.25, 1.5, 2.0)
    voters: int = 15_000  # samples times starts; of few samples single ones matter more
    fewest_starts: int = 4
    most_starts: int = 20
    halves: int = 24  # of the votes: there may be two consensuses of nearly equal merit
    seen: int = 1000  # representatives of the consensus of some votes at most
    tightest: float = 0.25  # share of the runs in each space and size that have a consensus of their own
    tightness: float = 6.0  # exponent of the inertia
    single_weight: float = 1 / 3  # of single clusterings in what a model is fitted to; none: too sure a model

    def starts(self, samples: int) -> int:
        """Return the number of partitions for each space and number of clusters."""
        return min(max(self.voters // samples, self.fewest_starts), self.most_starts)

    def with_starts(self, starts: int) -> VoteChoices:
        """Return the same parameters with one number of starts for any number of samples."""
        return replace(self, fewest_starts=starts, most_starts=starts)


@dataclass(frozen=True)
class OpinionChoices:
    """Parameters of the second opinion; ``docs/measurements.md`` says on which tasks they were chosen."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    draws: int = 2  # embeddings of a space: k-means in one varies by five points; 0 asks for no opinion
    width: int = 20
    neighbours: int = 10
    steps: int = 300
    weight: float = 0.5  # of its votes beside the own ones
    most_inertia: float = 1.05  # in the last space, in relation to the own consensus
    most_change: float = 0.015  # of the share of links inside clusters; a rise tells against it, too
    most_fall: float = 0.02  # of the evenness of the cluster sizes


@dataclass(frozen=True)
class GuardChoices:
    """Parameters of the transfer guard; ``docs/measurements.md`` says on which tasks they were chosen."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    opinion_weight: float = 0.35  # decides where the own clusterings are divided two to one
    equal_weight: float = 0.5
    least_agreement: float = 0.65  # where own clusterings agree little, wrong labels would be trusted
    least_trust: float = -0.05
    equal_trust: float = 0.08
    # Own agreement from which labels need the larger trust. They would join and split groups that all spaces
    # show: with ten classes of Office-31, such labels cost 10 points on amazon and 11 on webcam.
    undivided: float = 0.9
