"""Writes the findings of an audit as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import jinja2

from ucds.auditing.extraction import Price
from ucds.auditing.findings import LIMITS, Findings

_WIDTH, _HEIGHT = 560, 180


def render(findings: Findings) -> str:
    """Write a report as HTML; the page holds no script and loads nothing."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    text = (files("ucds.auditing") / "template" / "audit.html").read_text(encoding="utf-8")
    return environment.from_string(text).render(
        facts=findings,
        summary=findings.summary(),
        attacks=[*findings.membership, findings.domains],
        limits=LIMITS,
        points=_points(findings.prices),
        width=_WIDTH,
        height=_HEIGHT,
    )


def _points(prices: Sequence[Price]) -> list[tuple[float, float, str]]:
    """Place the price curve: even steps to the right, agreement upwards, with a caption for each point."""
    step = _WIDTH / (len(prices) + 1)
    return [
        (step * (i + 1), _HEIGHT * (1 - price.agreement), f"{price.labels:,}")
        for i, price in enumerate(prices)
    ]
