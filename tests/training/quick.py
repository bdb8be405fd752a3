"""Settings for tests of other things than the consensus, and a reporter that keeps what it is told."""

from collections.abc import Mapping
from typing import Any

import ucds
from ucds.choices import OpinionChoices
from ucds.training.progress import Quiet


def quick(**settings: Any) -> ucds.ConsensusSettings:
    """Return settings with one start and without a second opinion: of few samples a sixth of a second."""
    return ucds.ConsensusSettings(**{"starts": 1, "second_opinion": OpinionChoices(draws=0)} | settings)


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
