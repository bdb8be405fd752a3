"""Audits a provider's model: runs all attacks on members of its training data and on other samples."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ucds.arguments import checked, require_fields
from ucds.auditing import attacks
from ucds.auditing.attacks import BAG, Scores
from ucds.auditing.report import Attack, Findings, Prevalence, attack_success, render
from ucds.auditing.subject import Labels, Opened, open_subject, parts_of
from ucds.data.sources import Source
from ucds.errors import InputError
from ucds.files import require_writable, write_text_atomically
from ucds.labels.client import LabelClient
from ucds.training.options import Compute, EncoderOptions, require_seed
from ucds.training.progress import Reporter
from ucds.training.run_folder import files_read
from ucds.training.seeds import numpy_generator

FEWEST = 20
"""Least number of members, and of others, that an audit needs."""

_SMALLEST_PIXEL = 2.0  # first radius in the search for a boundary, as a deviation in pixel values
_SMALLEST_SHARE = 0.5  # the same for vectors, as a part of their spread


@dataclass(frozen=True)
class Effort:
    """Numbers of samples and queries of an audit.

    Attributes:
        samples: number of members to ask about, and of others; fewer if there are fewer.
        variants: number of changed copies of each.
        boundary: number of members whose distance to the boundary is sought, and of others.
        steps: number of steps along an estimated gradient for each image.
        shadows: number of shadow clusterers.

    Raises:
        InputError: a number is not an integer, below 0 for ``steps``, or below 1 for the others.
    """

    samples: int = 1000
    variants: int = 6
    boundary: int = 30
    steps: int = 2
    shadows: int = 16

    def __post_init__(self) -> None:
        """Refuse numbers with which nothing could be measured."""
        require_fields(self)
        for name, number in vars(self).items():
            least = 0 if name == "steps" else 1
            if number < least:
                raise InputError(f"`{name}` must be at least {least}, not {number}")


QUICK = Effort(samples=100, variants=4, boundary=8, steps=0, shadows=8)


@checked
def audit(
    run: str | Path | None,
    members: Source,
    others: Source,
    out: str | Path,
    *,
    client: LabelClient | None = None,
    encoder: EncoderOptions | None = None,
    effort: Effort | None = None,
    seed: int = 0,
    compute: Compute | None = None,
) -> Findings:
    """Attack a source model with labels alone, and write what was found; ``ucds audit`` does the same.

    Args:
        run: folder of a finished source run; ``None`` attacks the service of ``client``.
        members: samples that the model was trained on, best with one folder per domain.
        others: samples of the same kind that the model was not trained on, likewise by domain.
        out: HTML file to write; a JSON file with all figures is written beside it.
        client: client of a label service, whose budget must cover the queries; ``None`` attacks ``run``.
        encoder: the attacker's encoder for images; that of ``run`` if ``None``.
        effort: number of samples and queries; the defaults if ``None``.
        seed: seed of every random choice.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the run, the service or the samples cannot be used, or there are too few samples.
        UserError: the service refuses, or cannot be reached.
    """
    started, out, effort = time.monotonic(), Path(out), effort or Effort()
    compute = compute or Compute()
    require_seed(seed)
    folder = None if run is None else Path(run)
    figures, inputs = out.with_suffix(".json"), files_read(folder, members, others)
    out, figures = require_writable(out, ".html", ".htm"), require_writable(figures, ".json", inputs=inputs)
    attacked = folder or client
    if attacked is None or None not in (run, client):
        raise InputError("an audit attacks either a run or a service: give one of them")
    opened = open_subject(attacked, (members, others), encoder, effort.samples, seed, compute)
    counts = [len(samples) for samples in opened.samples]
    if min(counts) < FEWEST:
        raise InputError(
            f"an audit needs {FEWEST} members and {FEWEST} others, not {counts[0]} and {counts[1]}"
        )
    found = _Audit(opened, effort, seed, compute.reporter).findings()
    settings = {"seed": seed, **asdict(effort)}
    found = replace(found, settings=settings, seconds=round(time.monotonic() - started, 1))
    write_text_atomically(out, render(found))
    write_text_atomically(figures, json.dumps(found.to_dict(), indent=2) + "\n")
    return found


class _Audit:
    """Runs the attacks in turn, on members and others together: an attacker cannot tell them apart."""

    def __init__(self, opened: Opened, effort: Effort, seed: int, reporter: Reporter) -> None:
        self._opened, self._effort, self._seed, self._reporter = opened, effort, seed, reporter
        self._subject, self._both = opened.subject, opened.samples
        self._labels: list[Labels] = [
            np.concatenate([self._subject.ask(rows.read(part)) for part in parts_of(np.arange(len(rows)))])
            for rows in self._both
        ]

    def findings(self) -> Findings:
        """Run all attacks."""
        agreement, agreeing = self._agreement()
        boundary = self._boundary()
        shadow, shadowing = self._shadow()
        return Findings(
            provider=self._subject.name,
            n_clusters=self._subject.n_clusters,
            privacy=self._subject.privacy,
            members=len(self._both[0]),
            others=len(self._both[1]),
            queries=self._subject.queries,
            membership=(agreement, boundary, shadow),
            domains=self._domains(agreeing, shadowing),
            stability=self._stability(agreeing),
            prevalence=self._prevalence(),
            prices=attacks.price_curve(self._opened.features[1], self._labels[1], self._rng("price")),
        )

    def _rng(self, purpose: str) -> np.random.Generator:
        return numpy_generator(self._seed, "audit", purpose)

    def _agreement(self) -> tuple[Attack, list[Scores]]:
        count, scores = self._effort.variants, []
        images = self._opened.images
        chosen = (
            attacks.image_variants(count) if images else attacks.vector_variants(count, self._opened.spread)
        )
        for samples, labels, what in zip(self._both, self._labels, ("members", "others"), strict=True):
            progress = partial(self._reporter.show, f"changed copies of {what}")
            rng = self._rng(f"changed copies of {what}")
            scores.append(attacks.agreement_scores(self._subject, samples, labels, chosen, rng, progress))
        what = "The share of changed copies of a sample that keep its label."
        return Attack("agreement", what, 1 + len(chosen), attack_success(*scores)), scores

    def _boundary(self) -> Attack:
        images, effort = self._opened.images, self._effort
        smallest = _SMALLEST_PIXEL if images else _SMALLEST_SHARE * self._opened.spread
        most, steps = (effort.boundary, effort.steps) if images else (10 * effort.boundary, 0)
        size = 10 if images else 100
        before, asked, scores = self._subject.queries, 0, list[Scores]()
        for samples, labels, what in zip(self._both, self._labels, ("members", "others"), strict=True):
            # The samples are in the order of their domains: the first ones would be those of one domain.
            chosen = np.sort(self._rng(f"boundary of {what}").permutation(len(samples))[:most])
            progress = partial(self._reporter.show, f"boundary of {what}")
            rng = self._rng(f"directions of {what}")
            parts, asked = list[Scores](), asked + len(chosen)
            for number, index in enumerate(parts_of(chosen, size)):
                progress(number * size, len(chosen))
                rows = samples.read(index)
                distances = attacks.boundary_distances(
                    self._subject, rows, labels[index], rng, smallest=smallest, steps=steps
                )
                parts.append(distances)
            progress(len(chosen), len(chosen))
            scores.append(np.concatenate(parts))
        queries = 1 + (self._subject.queries - before) / asked
        what = "The distance to the nearest point of another label, along random directions and gradients."
        return Attack("boundary", what, queries, attack_success(*scores))

    def _shadow(self) -> tuple[Attack, list[Scores]]:
        features, labels = np.concatenate(self._opened.features), np.concatenate(self._labels)
        shadows, clusters = self._effort.shadows, self._subject.n_clusters
        scores = attacks.shadow_scores(features, labels, clusters, self._rng("shadow"), shadows)
        parts = [scores[: len(self._labels[0])], scores[len(self._labels[0]) :]]
        what = (
            "How much more often clusterers that saw a sample agree with its label than those that did not."
        )
        return Attack("shadow clusterers", what, 1, attack_success(*parts)), parts

    def _domains(self, *kinds: list[Scores]) -> Attack:
        """Sum the standardised scores of several attacks over bags of one domain."""
        totals = [np.zeros(len(samples)) for samples in self._both]
        for scores in kinds:
            joined = np.concatenate(scores)
            for total, part in zip(totals, scores, strict=True):
                total += (part - joined.mean()) / max(float(joined.std()), 1e-12)
        bags = [
            attacks.bag_scores(total, samples.domain, self._rng("bags"))
            for total, samples in zip(totals, self._both, strict=True)
        ]
        what = f"Both scores that need no boundary, averaged over {BAG} samples of one domain."
        missing = f"each side needs at least two domains' worth of {BAG} samples"
        queries = BAG * (1.0 + self._effort.variants)
        success = attack_success(*bags) if min(map(len, bags)) > 1 else None
        return Attack("domain", what, queries, success, missing)

    def _stability(self, agreeing: list[Scores]) -> dict[str, float]:
        shares = {}
        for samples, scores, what in zip(self._both, agreeing, ("member", "other"), strict=True):
            for d in np.unique(samples.domain):
                name = f"{samples.domain_names[d]} ({what})"
                shares[name] = float(scores[samples.domain == d].mean())
        return shares

    def _prevalence(self) -> Prevalence | None:
        """Compute half the sum of absolute differences between assumed and true shares of the clusters."""
        truth, labels = self._subject.proportions, self._labels[1]
        if truth is None:
            return None
        own, equal = np.bincount(labels, minlength=len(truth)) / len(labels), 1 / len(truth)
        return Prevalence(*(float(np.abs(assumed - truth).sum() / 2) for assumed in (own, equal)))
