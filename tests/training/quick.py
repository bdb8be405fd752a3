"""Settings with which a consensus of few samples takes a sixth of a second, for tests of other things."""

from typing import Any

import ucds
from ucds.choices import OpinionChoices


def quick(**settings: Any) -> ucds.ConsensusSettings:
    """Return settings with one start and without a second opinion."""
    return ucds.ConsensusSettings(**{"starts": 1, "second_opinion": OpinionChoices(draws=0)} | settings)
