"""Names that a user chooses between, on the command line and in Python alike, and numbers of clusters.

The figures of the consensus method that nobody chooses stand here too, so that a benchmark can vary them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from ucds.errors import InputError

if TYPE_CHECKING:
    from pydantic import ConfigDict

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


@dataclass(frozen=True)
class VoteChoices:
    """Figures of the vote of k-means; ``docs/measurements.md`` says on which tasks they were chosen."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    # Numbers of clusters of the partitions that vote, as multiples of K. Partitions into more clusters than
    # are sought split large groups in different places and keep small groups whole. What all of them put
    # together depends little on single starts of k-means, most of which are poor when K is small.
    fineness: tuple[float, ...] = (1.0, 1.25, 1.5, 2.0)
    # Samples times starts; few samples need more starts, because single samples matter more.
    voters: int = 15_000
    fewest_starts: int = 4
    most_starts: int = 20
    # Random halves of the votes, each of which has a consensus: the votes may have two of nearly equal merit.
    halves: int = 24
    # Samples at most by which the consensus of some votes is found; all votes move all samples afterwards.
    seen: int = 1000
    # Share of the runs in each space and size that have a consensus of their own: chalk needs the halves,
    # and cartoon needs the tightest.
    tightest: float = 0.25
    # Exponent of the inertia of a candidate, by which its co-association is divided.
    tightness: float = 6.0
    # Weight of single clusterings beside their consensus in what a model is fitted to. The consensus alone
    # makes the model too sure; with a half, sketch loses more than a point of accuracy.
    single_weight: float = 1 / 3

    def starts(self, samples: int) -> int:
        """Return the number of partitions for each space and number of clusters."""
        return min(max(self.voters // samples, self.fewest_starts), self.most_starts)


@dataclass(frozen=True)
class OpinionChoices:
    """Figures of the second opinion; the thresholds were read off 35 tasks, where they are flat."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    # Embeddings of each of the two spaces; without any, no second opinion is asked for. k-means in a single
    # one varies by five points between seeds.
    draws: int = 2
    # Dimensions of the embeddings, nearest samples that a sample is linked with, and steps of the descent.
    width: int = 20
    neighbours: int = 10
    steps: int = 300
    # Weight of the second opinion's votes beside the own ones.
    weight: float = 0.5
    # Inertia at most in relation to that of the own consensus: 1.01 to 1.02 do as well.
    most_inertia: float = 1.02
    # Change at most of the share of links inside clusters, in relation: 0.01 to 0.02 do as well. A rise tells
    # against a consensus as a fall does, as on photo and sketch.
    most_change: float = 0.01
    # Fall at most of the evenness of the cluster sizes: 0.01 to 0.03 do as well.
    most_fall: float = 0.03


@dataclass(frozen=True)
class GuardChoices:
    """Figures of the transfer guard; ``docs/measurements.md`` says on which tasks they were chosen."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    # Weights of labels that decide where the own clusterings are divided two to one, and that count equally.
    opinion_weight: float = 0.35
    equal_weight: float = 0.5
    # Labels are set aside if they agree with the own clusterings less than so many times as well as these
    # agree with each other. Where these agree little, wrong labels would be trusted otherwise.
    least_agreement: float = 0.65
    # Trust from which labels count as an opinion, and from which they count equally.
    least_trust: float = -0.05
    equal_trust: float = 0.08
    # Agreement of the own clusterings from which labels are used from the larger trust only. They would join
    # and split groups that the own clusterings find in every space: with ten classes of Office-31, where
    # these agree so well, such labels cost 10 points on amazon and 11 on webcam.
    undivided: float = 0.9

    @property
    def weights(self) -> Mapping[str, float]:
        """Weight of the labels among all clusterings, by their use."""
        return {"own": 0.0, "opinion": self.opinion_weight, "equal": self.equal_weight}
