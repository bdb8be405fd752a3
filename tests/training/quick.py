"""Settings for tests of other things than the consensus, and a reporter that keeps what it is told."""

from collections.abc import Mapping
from typing import Any

import ucds
from ucds.choices import OpinionChoices, VoteChoices
from ucds.training.progress import Quiet


def quick(**settings: Any) -> ucds.ConsensusSettings:
    """Return settings with one start, few candidates and no second opinion: a tenth of a second each."""
    least = {"starts": 1, "vote": VoteChoices(halves=2), "second_opinion": OpinionChoices(draws=0)}
    return ucds.ConsensusSettings(**least | settings)


class Listener(Quiet):
    """Keeps what is said, and the title and total of each work that begins."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.begun: list[tuple[str, int]] = []

    def say(self, message: str) -> None:
        self.said.append(message)

    def show(self, title: str, done: int, total: int, figures: Mapping[str, float] | None = None) -> None:
        if done == 0:
            self.begun.append((title, total))
