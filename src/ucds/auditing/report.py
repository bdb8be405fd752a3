"""The findings of an audit: figures, sentences, and a self-contained page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np

from ucds.auditing.attacks import BAG, WANTED, Price, Scores, price_of
from ucds.math.privacy import Guarantee
from ucds.showing import shows

LIMITS = (
    "An attack that fails proves nothing about a better one: more may be possible than these figures show.",
    "The attacks see labels alone. Somebody with the model file learns more.",
    "Members and others must come from the same kind of images. If they differ in anything else, such as the "
    "camera, then the attacks measure that difference too.",
    "An interval speaks of these samples and this model; another training run can leak more or less.",
)
CONFIDENCE = 0.95
_WIDTH, _HEIGHT = 560, 180


@dataclass(frozen=True)
class AttackSuccess:
    """Success of an attack on members and others."""

    auc: float  # probability that a member has a larger score than another sample, ties counted half
    auc_low: float  # lower end of its 95 % interval
    auc_high: float  # upper end of it
    tpr_at_10: float  # share of the members found when at most one in ten others is taken for one
    tpr_at_1: float  # share found when at most one in a hundred others is
    members: int  # number of members
    others: int  # number of others


def attack_success(members: Scores, others: Scores) -> AttackSuccess:
    """Measure how far scores tell members from others; large scores speak for membership.

    Label-only attacks give few different scores. Ties count half in the area, and all or none at a threshold.

    Source:
        E. DeLong, D. DeLong and D. Clarke-Pearson, Comparing the areas under two or more correlated receiver
        operating characteristic curves, 1988 (interval).
    """
    from scipy.stats import norm, rankdata  # it takes a while to load
    from sklearn.metrics import roc_curve

    m, n = len(members), len(others)
    scores = np.concatenate([members, others])
    false_rates, true_rates, _ = roc_curve(np.repeat([1, 0], [m, n]), scores, drop_intermediate=False)
    at_10, at_1 = (float(true_rates[false_rates <= limit].max(initial=0.0)) for limit in (0.1, 0.01))
    ranks = rankdata(scores)
    over_others = (ranks[:m] - rankdata(members)) / n
    under_members = 1 - (ranks[m:] - rankdata(others)) / m
    area = float(over_others.mean())
    variance = over_others.var(ddof=1) / m + under_members.var(ddof=1) / n
    if variance == 0 and area in (0.0, 1.0):  # all pairs agree: the exact bound for the smaller sample
        reach = 1 - (1 - CONFIDENCE) ** (1 / min(m, n))
    else:
        reach = float(norm.ppf((1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return AttackSuccess(area, max(0.0, area - reach), min(1.0, area + reach), at_10, at_1, m, n)


@dataclass(frozen=True)
class Attack:
    """Result of one attack on members and others."""

    name: str  # short name
    what: str  # description of the attack, a sentence
    queries: float  # queries for each sample
    success: AttackSuccess | None  # `None` if there were too few samples
    missing: str = ""  # reason why there is no result; empty if there is one

    @property
    def sentence(self) -> str:
        """Sentence that says what the attack finds out."""
        if self.success is None:
            return f"Not measured: {self.missing}."
        found = self.success
        area = f"area {found.auc:.2f} ({found.auc_low:.2f} to {found.auc_high:.2f})"
        if found.auc_low <= 0.5:
            return f"No better than guessing within the interval: {area}."
        return (
            f"A client with {self.queries:,.0f} queries for each finds out for {100 * found.tpr_at_1:.0f} of "
            f"100 members that they were used, if one in a hundred others may be accused falsely; {area}."
        )


@dataclass(frozen=True)
class Prevalence:
    """Knowledge that a client gains about the sizes of the source's clusters."""

    misplaced: float  # share of the source that the client's own shares put into wrong clusters
    without_labels: float  # the same for a client that takes all clusters to be equal


@shows()
@dataclass(frozen=True)
class Findings:
    """Findings of an audit."""

    provider: str  # name of the model
    n_clusters: int  # number of clusters, K
    privacy: Guarantee | None  # guarantee that the model carries; `None` without one
    members: int  # number of members asked about
    others: int  # number of others asked about
    queries: int  # number of queries of all attacks together
    membership: Sequence[Attack]  # attacks on single samples
    domains: Attack  # attack on whole domains
    stability: dict[str, float]  # mean share of changed copies with an unchanged label, by domain
    prevalence: Prevalence | None  # error of a client about cluster sizes; `None` if unknown here
    prices: Sequence[Price]  # agreement of students by number of bought labels
    settings: dict[str, Any] = field(default_factory=dict)  # of the audit, by name
    seconds: float = 0.0  # time that the audit took

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as JSON types, with their sentences."""
        return asdict(self) | {"summary": self.summary(), "limits": list(LIMITS)}

    def summary(self) -> list[str]:
        """Say in sentences what was found, most important first."""
        lines = [self._strongest(), self._guarantee(), _of_domains(self.domains), _of_prices(self.prices)]
        return lines if self.prevalence is None else [*lines, _of_prevalence(self.prevalence)]

    def _strongest(self) -> str:
        measured = [attack for attack in self.membership if attack.success is not None]
        if not measured:
            return "Membership: no attack could be measured."
        best = max(measured, key=lambda attack: attack.success.auc if attack.success else 0.0)
        return f"Membership: the strongest attack is '{best.name}'. {best.sentence}"

    def _guarantee(self) -> str:
        if self.privacy is None:
            return "Guarantee: the model has none; budgets and rates make attacks costly, but not impossible."
        return f"Guarantee: the model claims {self.privacy}, for any number of queries."


def _of_domains(attack: Attack) -> str:
    if attack.success is None:
        return f"Domains: {attack.sentence}"
    found = attack.success
    return (
        f"Domains: of a source domain and another one, {BAG} images of each, an attacker picks the source "
        f"domain in {100 * found.auc:.0f} of 100 cases ({100 * found.auc_low:.0f} to "
        f"{100 * found.auc_high:.0f}; guessing gives 50)."
    )


def _of_prices(prices: Sequence[Price]) -> str:
    price = price_of(prices)
    labels, share, end = price, WANTED, " or more"
    if price is None:
        labels, share, end = *astuple(prices[-1]), f"; none here reached {100 * WANTED:.0f}"
    return (
        f"Copying: {labels:,} bought labels give a student that agrees with the provider on "
        f"{100 * share:.0f} of 100 other samples{end}."
    )


def _of_prevalence(found: Prevalence) -> str:
    return (
        "Sizes of the clusters: a client that takes its own shares for the source's puts "
        f"{100 * found.misplaced:.0f} % of the source into wrong clusters; taking all clusters for equal, "
        f"{100 * found.without_labels:.0f} %."
    )


def render(findings: Findings) -> str:
    """Write the findings as HTML; the page holds no script and loads nothing."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    text = (files("ucds.auditing") / "template" / "audit.html").read_text(encoding="utf-8")
    step = _WIDTH / (len(findings.prices) + 1)
    points = [
        (step * (i + 1), _HEIGHT * (1 - price.agreement), f"{price.labels:,}")
        for i, price in enumerate(findings.prices)
    ]
    return environment.from_string(text).render(
        facts=findings,
        summary=findings.summary(),
        attacks=[*findings.membership, findings.domains],
        limits=LIMITS,
        points=points,
        width=_WIDTH,
        height=_HEIGHT,
    )
