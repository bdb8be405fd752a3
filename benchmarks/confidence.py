"""How well the confidence of a prediction tells right from wrong, and what it is worth as a probability.

Each domain is clustered alone by the method `consensus`, on frozen features and with the right number of
clusters. A sample is right if its cluster is the one that matches its class. With ``--new``, four fifths of
a domain are clustered, and the others, which the model has not seen, are judged. Ground truth is read for
the scores only. Runs that are recorded in `confidence.jsonl` are left out; the page is written anew from all
of them.

    python benchmarks/confidence.py DATA ... [--backbone NAME --weights FILE] [--cache DIR] [--seeds 5]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean

import numpy as np
from numpy.typing import NDArray
from real_features import Domain, parser_of, read_domains
from records import Records, grouped, line
from sklearn.metrics import roc_auc_score

from ucds import TargetClustering
from ucds.math.metrics import match_clusters
from ucds.training.loaded import Model
from ucds.training.options import Compute

CHOSEN_ON = ("dslr", "photo", "art_painting")
"""Domains on which the rule of the confidence was chosen."""

BINS = 10
INTRODUCTION = f"""# What a confidence is worth

Made by `python benchmarks/confidence.py` from `confidence.jsonl`; not edited by hand. How a confidence is
computed: [docs/consensus.md](../docs/consensus.md). Each domain is clustered alone, on frozen features,
with the right number of clusters. The figures are means over seeds.

- *error*: expected calibration error with {BINS} bins of equal width, in points. 0 is best.
- *AUROC*: probability that a sample that is right has a larger confidence than one that is wrong; chance
  gives 0.5.
- *too high*: mean confidence less the accuracy, in points; negative if the confidence is too low.
- *right*, *wrong*: mean confidence of samples that are right, and of those that are wrong, in percent.
- *surest half*: accuracy of the half of the samples with the largest confidence, in percent.

The rule was chosen on the domains with (*), with one seed, and the others confirm it or do not. A run has
the confidence of the revision that made it.
"""
HEAD = """
| domain | seeds | accuracy | error | too high | AUROC | right | wrong | surest half |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True)
class Run:
    """What the confidence was worth in one domain; ``new``: on samples that were not clustered."""

    domain: str
    seed: int
    new: bool
    samples: int
    accuracy: float
    error: float
    auroc: float
    right: float
    wrong: float
    surest: float

    @property
    def excess(self) -> float:
        """Mean confidence less the accuracy."""
        return self.accuracy * self.right + (1 - self.accuracy) * self.wrong - self.accuracy


def measure(domain: Domain, seed: int, new: bool) -> Iterator[Run]:
    """Cluster a domain, or four fifths of it, and judge the confidence."""
    left_out = np.random.default_rng(seed).permutation(len(domain.vectors)) % 5 == 0
    learned = ~left_out if new else np.ones(len(left_out), dtype=bool)
    judged = left_out if new else learned
    estimator = TargetClustering(int(domain.classes.max()) + 1, random_state=seed, accelerator="cpu")
    estimator.fit(domain.vectors[learned])
    model = Model(estimator.stored_, Compute("cpu"))
    found = model.outputs(model.open(domain.vectors[judged]))
    clusters, classes = found.probabilities.argmax(1), domain.classes[judged]
    matching = match_clusters(clusters, classes)
    right = np.array([matching.get(int(k)) for k in clusters]) == classes
    yield Run(domain.name, seed, new, len(right), *judge(found.confidence, right))


def judge(confidence: NDArray[np.float32], right: NDArray[np.bool_]) -> tuple[float, ...]:
    """Return accuracy, calibration error, AUROC, means of right and wrong, accuracy of the surest half."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(float((confidence - right)[bins == b].sum())) for b in range(BINS)]
    surest = np.argsort(-confidence, kind="stable")[: len(right) // 2]
    figures = (
        right.mean(),
        sum(gaps) / len(right),
        roc_auc_score(right, confidence),
        confidence[right].mean(),
        confidence[~right].mean(),
        right[surest].mean(),
    )
    return tuple(round(float(figure), 4) for figure in figures)


def table(runs: Sequence[Run]) -> str:
    """Write a row for each domain, and the means of those of the choice and of the others."""
    rows = [row(name + " *" * is_chosen_on(name), own) for name, own in grouped(runs, "domain").items()]
    for title, chosen in (("mean of those with (*)", True), ("mean of the others", False)):
        if own := [run for run in runs if is_chosen_on(run.domain) is chosen]:
            rows.append(row(title, own))
    return HEAD + "".join(rows)


def row(title: str, runs: Sequence[Run]) -> str:
    """Write the mean figures of some runs; every domain counts alike."""
    domains = grouped(runs, "domain").values()

    def figure(name: str) -> float:
        return float(mean(mean(getattr(run, name) for run in own) for own in domains))

    seeds = min(map(len, domains))
    cells = [title, str(seeds), f"{100 * figure('accuracy'):.1f}", f"{100 * figure('error'):.1f}"]
    cells += [
        f"{100 * figure('excess'):+.1f}",
        f"{figure('auroc'):.3f}",
        *(f"{100 * figure(name):.0f}" for name in ("right", "wrong")),
    ]
    cells.append(f"{100 * figure('surest'):.1f}")
    return line(cells)


def is_chosen_on(domain: str) -> bool:
    """Whether the rule was chosen on a domain."""
    return domain.split()[-1] in CHOSEN_ON


def page(runs: Sequence[Run]) -> str:
    """Write the tables of all records."""
    parts = [INTRODUCTION]
    for new, where in ((False, "Samples that were clustered"), (True, "Samples that the model has not seen")):
        own = [run for run in runs if run.new is new]
        if own:
            parts += [f"\n## {where}\n", table(own)]
    return "".join(parts)


def main() -> None:
    parser = parser_of("Measure what the confidence of predictions is worth.")
    parser.add_argument("--new", action="store_true", help="judge samples that were left out")
    options = parser.parse_args()
    domains = list(read_domains(options))
    jobs = (
        ({"domain": one.name, "seed": seed, "new": options.new}, partial(measure, one, seed, options.new))
        for seed in range(options.seeds)
        for one in domains
    )
    Records(__file__, Run).complete(jobs, page)


if __name__ == "__main__":
    main()
