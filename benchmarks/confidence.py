"""How well the confidence of a prediction tells right from wrong, and what it is worth as a probability.

A sample is right if its cluster is the one that matches its class. With ``--new``, four fifths of a domain
are clustered, and the others, which the model has not seen, are judged.

    python benchmarks/confidence.py DATA ... [--weights ENCODER=FILE] [--digits] [--cache DIR] [--new]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import mean

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from real_features import Domain, parser_of, read_domains
from records import Row, complete, table
from sklearn.metrics import roc_auc_score

from ucds import Compute, Model, TargetClustering
from ucds.math.metrics import match_clusters

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
COLUMNS = {
    "accuracy": ("accuracy", "{:.1%}"),
    "error": ("error", "{:.1%}"),
    "too high": ("excess", "{:+.1%}"),
    "AUROC": ("auroc", "{:.3f}"),
    "right": ("right", "{:.0%}"),
    "wrong": ("wrong", "{:.0%}"),
    "surest half": ("surest", "{:.1%}"),
}
"""The figure of each column, and how it is written, less the sign of percent."""


def measure(domain: Domain, seed: int, new: bool) -> Iterator[Row]:
    """Cluster a domain, or four fifths of it, and judge the confidence of what was clustered, or was not."""
    left_out = np.random.default_rng(seed).permutation(len(domain.vectors)) % 5 == 0
    learned = ~left_out if new else np.ones(len(left_out), dtype=bool)
    judged = left_out if new else learned
    estimator = TargetClustering(domain.n_classes, random_state=seed, accelerator="cpu")
    estimator.fit(domain.vectors[learned])
    model = Model(estimator.stored_, Compute("cpu"))
    found = model.outputs(model.open(domain.vectors[judged]))
    clusters, classes = found.probabilities.argmax(1), domain.classes[judged]
    matching = match_clusters(clusters, classes)
    right = np.array([matching.get(int(k)) for k in clusters]) == classes
    run = {"domain": domain.name, "seed": seed, "new": new, "samples": len(right)}
    yield run | judge(found.confidence, right)


def judge(confidence: NDArray[np.float32], right: NDArray[np.bool_]) -> dict[str, float]:
    """Return accuracy, calibration error, AUROC, means of right and wrong, accuracy of the surest half."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(float((confidence - right)[bins == b].sum())) for b in range(BINS)]
    surest = np.argsort(-confidence, kind="stable")[: len(right) // 2]
    figures = {
        "accuracy": right.mean(),
        "error": sum(gaps) / len(right),
        "auroc": roc_auc_score(right, confidence),
        "right": confidence[right].mean(),
        "wrong": confidence[~right].mean(),
        "surest": right[surest].mean(),
    }
    return {name: round(float(figure), 4) for name, figure in figures.items()}


def table_of(runs: pd.DataFrame) -> str:
    """Write a row for each domain, and the means of those of the choice and of the others."""
    domains = runs.groupby("domain", sort=False)
    # Means of whole decimals, which the sums of pandas would round.
    means = domains[[figure for figure, _ in COLUMNS.values()]].agg(mean)
    seeds = domains.size()
    chosen = means.index.str.split().str[-1].isin(CHOSEN_ON)
    names = means.index + np.where(chosen, " *", "")
    rows = [row(*each) for each in zip(names, seeds, means.to_dict("records"), strict=True)]
    for title, some in (("mean of those with (*)", chosen), ("mean of the others", ~chosen)):
        if some.any():
            rows.append(row(title, seeds[some].min(), means[some].agg(mean)))
    return table(rows, "lrrrrrrrr")


def row(title: str, seeds: int, means: Mapping[str, float]) -> Row:
    """Write some figures."""
    cells = {name: form.format(means[figure]).rstrip("%") for name, (figure, form) in COLUMNS.items()}
    return {"domain": title, "seeds": seeds} | cells


def page(rows: Sequence[Row]) -> str:
    """Write the tables of all records."""
    runs = pd.DataFrame(rows)
    runs["excess"] = runs["accuracy"] * (runs["right"] - 1) + (1 - runs["accuracy"]) * runs["wrong"]
    text = INTRODUCTION
    for new, own in runs.groupby("new"):
        where = "Samples that the model has not seen" if new else "Samples that were clustered"
        text += f"\n## {where}\n\n{table_of(own)}\n"
    return text


if __name__ == "__main__":
    parser = parser_of("Measure what the confidence of predictions is worth.")
    parser.add_argument("--new", action="store_true", help="judge samples that were left out")
    options = parser.parse_args()
    domains = [one for domains in read_domains(options) for one in domains]
    jobs = (
        ({"domain": one.name, "seed": seed, "new": options.new}, partial(measure, one, seed, options.new))
        for seed in range(options.seeds)
        for one in domains
    )
    complete(__file__, jobs, page)
