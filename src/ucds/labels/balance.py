"""Compares what a query asks for with what is left of the key's budget, before anything is spent."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ucds.data.content import content_key
from ucds.data.decode import UnusableImageError
from ucds.errors import RefusedError
from ucds.labels.client import LabelClient
from ucds.labels.questions import Questions
from ucds.labels.wire import ServiceInfo


def describe_balance(info: ServiceInfo) -> str | None:
    """Say what is left of the budget of the key that asks; ``None`` where there is no bound."""
    if info.budget is None or info.budget.limit is None:
        return None
    return f"{info.budget.remaining:,} of {info.budget.limit:,} labels are left of the budget of this key"


def refuse_overdraft(
    client: LabelClient,
    info: ServiceInfo,
    questions: Questions,
    positions: Sequence[int],
    known: Container[bytes],
) -> None:
    """Make sure that the budget covers a query, or that the client may overdraw it.

    Args:
        client: client of the service.
        info: information about the service, with the budget of the key; without one everything is covered.
        questions: samples.
        positions: positions of the samples to ask about.
        known: content keys of the samples whose labels have arrived before.

    Raises:
        RefusedError: the budget may not cover the query, and the client may not overdraw it.
    """
    remaining = None if info.budget is None else info.budget.remaining
    if client.overdraw or remaining is None or len(positions) <= remaining:
        return
    wanted = len(_contents(questions, positions, known))
    if wanted <= remaining:
        return
    fewer = f"ask about fewer by --max-queries {remaining}, or " if remaining else ""
    raise RefusedError(
        f"{remaining:,} labels are left of the budget of this key, and {wanted:,} samples have no label yet "
        f"(those that this key asked about before are free): {fewer}use up what is left by --overdraw"
    )


def _contents(questions: Questions, positions: Sequence[int], known: Container[bytes]) -> set[bytes]:
    """Find the different contents that a query would ask about; samples that cannot be read are left out."""
    found = set()
    for position in positions:
        try:
            key = content_key(questions.read(position))
        except UnusableImageError:
            continue
        if key not in known:
            found.add(key)
    return found
