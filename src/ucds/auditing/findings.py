"""What an audit found, in figures and in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ucds.auditing.extraction import WANTED, Price, price_of
from ucds.auditing.population import BAG
from ucds.auditing.reconstruction import Reconstruction
from ucds.math.attack_scores import AttackSuccess
from ucds.math.claims import PrivacyClaim

LIMITS = (
    "An attack that fails proves nothing about a better one: what is possible is more than these figures.",
    "The attacks see labels alone. Who has the model file learns more; the sentence about published "
    "prototypes shows some of it.",
    "Members and others must come from the same kind of images. If they differ in anything else, such as the "
    "camera, then the attacks measure that difference too.",
    "An interval speaks of these samples and this model; another training run can leak more or less.",
)


@dataclass(frozen=True)
class Attack:
    """Result of one attack on members and others.

    Attributes:
        name: short name.
        what: description of the attack, a sentence.
        queries: queries for each sample.
        success: success of the attack; ``None`` if there were too few samples.
        missing: reason why there is no result; empty if there is one.
    """

    name: str
    what: str
    queries: float
    success: AttackSuccess | None
    missing: str = ""

    @property
    def sentence(self) -> str:
        """Sentence that says what the attack finds out."""
        if self.success is None:
            return f"Not measured: {self.missing}."
        found, chance = self.success, self.success.auc_low <= 0.5
        rate = f"{100 * found.tpr_at_1:.0f} of 100"
        if chance:
            return (
                f"No better than guessing within the interval: area {found.auc:.2f} "
                f"({found.auc_low:.2f} to {found.auc_high:.2f})."
            )
        return (
            f"A client with {self.queries:,.0f} queries for each finds out for {rate} members that they were "
            f"used, if one in a hundred others may be accused falsely; area {found.auc:.2f} "
            f"({found.auc_low:.2f} to {found.auc_high:.2f})."
        )


@dataclass(frozen=True)
class Prevalence:
    """What a client learns of the sizes of the source's clusters.

    Attributes:
        misplaced: share of the source that the client's own shares put into wrong clusters.
        without_labels: the same for a client that takes all clusters to be equal.
    """

    misplaced: float
    without_labels: float


@dataclass(frozen=True)
class Findings:
    """Findings of an audit.

    Attributes:
        model: name of the model.
        n_clusters: number of clusters, K.
        privacy: guarantee that the model carries; ``None`` without one.
        members: number of members asked about.
        others: number of others asked about.
        queries: number of queries of all attacks together.
        refused: number of these that the service refused.
        membership: attacks on single samples.
        domains: attack on whole domains.
        stability: mean share of changed copies with an unchanged label, by domain.
        prevalence: error of a client about the sizes of clusters; ``None`` if they are not known here.
        prices: agreement of students by number of bought labels.
        reconstruction: closeness of the prototypes to single samples; ``None`` against a service.
        settings: settings of the audit by name.
        seconds: time that the audit took.
    """

    model: str
    n_clusters: int
    privacy: PrivacyClaim | None
    members: int
    others: int
    queries: int
    refused: int
    membership: Sequence[Attack]
    domains: Attack
    stability: dict[str, float]
    prevalence: Prevalence | None
    prices: Sequence[Price]
    reconstruction: Reconstruction | None
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as JSON types, with their sentences."""
        return asdict(self) | {"summary": self.summary(), "limits": list(LIMITS)}

    def summary(self) -> list[str]:
        """Say in sentences what was found, most important first."""
        lines = [self._strongest(), self._guarantee(), _of_domains(self.domains), _of_prices(self.prices)]
        if self.refused:
            lines.append(
                f"Refusals: the service refused {self.refused:,} of {self.queries:,} queries because they "
                "look like others."
            )
        if self.prevalence is not None:
            lines.append(_of_prevalence(self.prevalence))
        if self.reconstruction is not None:
            lines.append(_of_reconstruction(self.reconstruction))
        return lines

    def _strongest(self) -> str:
        measured = [attack for attack in self.membership if attack.success is not None]
        if not measured:
            return "Membership: no attack could be measured."
        best = max(measured, key=lambda attack: attack.success.auc if attack.success else 0.0)
        return f"Membership: the strongest attack is '{best.name}'. {best.sentence}"

    def _guarantee(self) -> str:
        if self.privacy is None:
            return "Guarantee: the model has none; budgets and rates make attacks dear, and not impossible."
        claim = self.privacy
        return (
            f"Guarantee: the model claims epsilon {claim.epsilon:g} and delta {claim.delta:g} for each "
            f"{claim.unit}, for any number of queries."
        )


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
    price, last = price_of(prices), prices[-1]
    if price is None:
        return (
            f"Copying: {last.labels:,} bought labels give a student that agrees with the provider on "
            f"{100 * last.agreement:.0f} of 100 other samples; none here reached {100 * WANTED:.0f}."
        )
    return (
        f"Copying: {price:,} bought labels give a student that agrees with the provider on "
        f"{100 * WANTED:.0f} of 100 other samples or more."
    )


def _of_prevalence(found: Prevalence) -> str:
    return (
        "Sizes of the clusters: a client that takes its own shares for the source's puts "
        f"{100 * found.misplaced:.0f} % of the source into wrong clusters; taking all clusters for equal, "
        f"{100 * found.without_labels:.0f} %."
    )


def _of_reconstruction(found: Reconstruction) -> str:
    return (
        f"Publishing the prototypes: {found.copied} of {found.prototypes} nearly are a single member (cosine "
        f"0.95 or more); to {found.nearest_member} the nearest sample is a member, where "
        f"{found.expected:.0f} would be by chance. Membership by the distance to a prototype: area "
        f"{found.success.auc:.2f} "
        f"({found.success.auc_low:.2f} to {found.success.auc_high:.2f})."
    )
