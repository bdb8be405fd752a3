"""What updates keep and what they cost: numbers that stay, new kinds, false alarms, and time.

The runs are made on frozen features. Ground truth is read for the scores only, and for the answers of a
simulated person.

    python benchmarks/living.py DATA ... [--weights ENCODER=FILE] [--digits] [--cache DIR] [--seeds 5]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import numpy as np
import pandas as pd
from real_features import Domain, parser_of, read_domains
from records import Row, complete, table, time_call
from sklearn.metrics import roc_auc_score

from ucds import Compute, Review, train_target, update
from ucds.config import ConsensusSettings
from ucds.data.content import content_key
from ucds.math import novelty
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.consensus import Partition, match
from ucds.math.metrics import clustering_accuracy
from ucds.math.spaces import centre, principal_axes, unit_rows
from ucds.target.agreement import agree
from ucds.target.growing import Growth, grow
from ucds.target.remembered import Remembered, read_remembered, write_features, write_remembered

SETTINGS = ConsensusSettings()
TUNED = ("office31 webcam", "office31 dslr", "pacs photo", "pacs art_painting")
"""Domains on which figures were chosen."""
CONTROLS, MOST_IN_CONTROL = 20, 500
RECOGNISED = 0.6
SIZES, KNOWN = ((5_000, 200), (500_000, 50_000)), 3_000
INTRODUCTION = f"""# Runs that take new images

Made by `python benchmarks/living.py` from `living.jsonl`; not edited by hand. Frozen features. Choices were
made on {", ".join(TUNED)}; the others confirm them or do not.
"""
NUMBERS = """
## Numbers that stay

A run on 60 % of a domain, and the rest in four updates. Accuracy in percent. *Anew*: everything clustered
anew. *Never*: old images never move, and new ones get the model's nearest cluster. *Update*: the package.
*With a person*: the proposals of the last update are answered from the classes, as `ucds review` asks them; a
group is recognised if 60 % of it are of one class, and the proposed cluster is taken if it is of that class.
*Kept*: share of the first images that keep their number.
"""
CHAINS = """
## Many small updates

The same rest in ten updates, and in one: accuracy in percent.
"""
KINDS = """
## New kinds

A run on 60 % of the images of two thirds of the classes; the other images come together. *AUROC* of the
p-values of new images, of new classes against known ones: in a batch, and each by itself. *Alarms*: share of
the images of known classes at 5 % or less. *Waiting right*: share of the images that fit no cluster that are
of new classes. *Found*: new classes that a new cluster matches with F1 of 0.5 or more.
"""
NONE_NEW = f"""
## Where no class is new

A run on 60 % of {MOST_IN_CONTROL} images at most, drawn anew each time, and the rest in one update: runs in
which a new cluster was made, or an image waits.
"""
COST = """
## Cost

`ucds.update` on synthetic vectors of 256 numbers in 50 clusters, one thread, files read and written included.
"""


def project(first: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the bottleneck features of a run on the first vectors."""
    axes, _ = principal_axes(centre(first), SETTINGS.bottleneck_width)
    found: FloatArray = ((unit_rows(vectors) - unit_rows(first).mean(0)) @ axes).astype(np.float32)
    return found


def extend(features: FloatArray, clusters: Partition, n_clusters: int, seed: int) -> Growth:
    """Take all features behind those that have clusters into a run."""
    start = np.full(len(features), -1)
    start[: len(clusters)] = clusters
    held = np.zeros(len(features), bool)
    return grow(features, start, held, n_clusters, SETTINGS, np.random.default_rng(seed))


def chain(features: FloatArray, first: Partition, n_clusters: int, parts: int, seed: int) -> Growth:
    """Take the features behind the first ones into a run, in so many updates."""
    clusters, number = first, n_clusters
    for end in np.linspace(len(first), len(features), parts + 1).astype(int)[1:]:
        found = extend(features[:end], clusters, number, seed)
        clusters, number = found.clusters, found.n_clusters
    return found


def answer_proposals(found: Growth, features: FloatArray, classes: IntArray) -> Partition:
    """Let a person who sees the classes answer what is proposed, and return the clusters."""
    n = len(features)
    ids, keys = tuple(map(str, range(n))), [content_key(str(i).encode()) for i in range(n)]
    kept = Remembered(
        ids, found.partitions, found.clusters, found.n_clusters, keys, None, np.zeros(n, bool), found.proposed
    )
    with tempfile.TemporaryDirectory() as folder:
        write_remembered(Path(folder), kept)
        write_features(Path(folder), features)
        review = Review(folder)
        asked = {frozenset(map(str, rows.tolist())) for rows, _ in kept.doubts().proposed}
        while (question := review.question()) is not None and frozenset(question.groups[0]) in asked:
            counts = [np.bincount(classes[[int(name) for name in group]]) for group in question.groups]
            same = [i for i, other in enumerate(counts[1:]) if other.argmax() == counts[0].argmax()]
            if counts[0].max() < RECOGNISED * counts[0].sum():
                review.answer("mixed")
            elif question.kind == "one-or-two":
                review.answer("one" if same else "two")
            else:
                review.answer(same[0] if same else "new")
        return review.partition.copy()


def begin(domain: Domain, seed: int) -> tuple[FloatArray, IntArray, Partition, FloatArray]:
    """Shuffle a domain and cluster 60 % of it: vectors, classes, clusters of the first, and features."""
    order = np.random.default_rng([seed, 7]).permutation(len(domain.vectors))
    vectors, size = domain.vectors[order], int(0.6 * len(order))
    first = agree(vectors[:size], domain.n_classes, SETTINGS, np.random.default_rng(seed)).partition
    return vectors, domain.classes[order], first, project(vectors[:size], vectors)


def measure_chains(domain: Domain, run: Row, seed: int) -> Iterator[Row]:
    """Compare ten small updates with one large one."""
    _, classes, first, features = begin(domain, seed)
    found = {"ten": 10, "one": 1}
    ends = {name: chain(features, first, domain.n_classes, parts, seed) for name, parts in found.items()}
    yield run | {
        name: round(100 * clustering_accuracy(one.clusters + 1, classes), 2) for name, one in ends.items()
    }


def measure_numbers(domain: Domain, run: Row, seed: int) -> Iterator[Row]:
    """Compare updates with everything anew, and with old images that never move."""
    vectors, classes, first, features = begin(domain, seed)
    size, k = len(first), domain.n_classes
    means = np.stack([features[:size][first == c].mean(0) for c in range(k)])
    never = np.concatenate([first, (unit_rows(features[size:]) @ unit_rows(means).T).argmax(1)])
    anew = agree(vectors, k, SETTINGS, np.random.default_rng(seed)).partition
    partners = match(anew[:size], first)
    four = chain(features, first, k, 4, seed)
    found = {
        "anew": anew,
        "never": never,
        "update": four.clusters,
        "person": answer_proposals(four, features, classes),
    }
    row = {name: round(100 * clustering_accuracy(some + 1, classes), 2) for name, some in found.items()}
    row["kept"] = round(100 * float((four.clusters[:size] == first).mean()), 2)
    renamed = np.array([partners.get(int(c), -1) for c in anew[:size]])
    row["kept anew"] = round(100 * float((renamed == first).mean()), 2)
    row["proposals"] = len(np.unique(four.clusters[four.proposed != four.clusters]))
    yield run | row


def measure_kinds(domain: Domain, run: Row, seed: int) -> Iterator[Row]:
    """Leave a third of the classes out of a run, and see what becomes of their images."""
    rng, k = np.random.default_rng([seed, 11]), domain.n_classes
    left, order = rng.permutation(k)[: round(k / 3)], rng.permutation(len(domain.vectors))
    strange = np.isin(domain.classes[order], left)
    known, size = order[~strange], int(0.6 * (~strange).sum())
    rows = np.concatenate([known, order[strange]])
    classes, is_strange = domain.classes[rows], np.isin(domain.classes[rows], left)[size:]
    features = project(domain.vectors[rows[:size]], domain.vectors[rows])
    n_clusters = k - len(left)
    batch = novelty.fit(features[:size], features[size:], n_clusters, np.random.default_rng(0))
    alone = novelty.fit_alone(features[:size], features[size:])
    first = agree(domain.vectors[rows[:size]], n_clusters, SETTINGS, np.random.default_rng(seed)).partition
    found = extend(features, first, n_clusters, seed)
    matched = 0
    for one in left:
        of_class = classes == one
        for cluster in range(n_clusters, found.n_clusters):
            inside = found.clusters == cluster
            if 2 * (of_class & inside).sum() >= 0.5 * (of_class.sum() + inside.sum()):
                matched += 1
                break
    rejected = novelty.reject(batch)
    yield run | {
        "batch": round(float(roc_auc_score(is_strange, -batch)), 4),
        "alone": round(float(roc_auc_score(is_strange, -alone)), 4),
        "batch alarms": round(100 * float((batch[~is_strange] <= novelty.ALARMS).mean()), 2),
        "alone alarms": round(100 * float((alone[~is_strange] <= novelty.ALARMS).mean()), 2),
        "rejected": int(rejected.sum()),
        "rejected right": int((rejected & is_strange).sum()),
        "left out": len(left),
        "found": matched,
        "made": found.n_clusters - n_clusters,
    }


def measure_control(domain: Domain, run: Row, draw: int) -> Iterator[Row]:
    """Update a run by images of the classes that it knows."""
    rows = np.random.default_rng([draw, 13]).permutation(len(domain.vectors))[:MOST_IN_CONTROL]
    vectors, k, size = domain.vectors[rows], domain.n_classes, int(0.6 * len(rows))
    first = agree(vectors[:size], k, SETTINGS, np.random.default_rng(draw)).partition
    found = extend(project(vectors[:size], vectors), first, k, draw)
    yield run | {"made": found.n_clusters - k, "waiting": int((found.clusters < 0).sum())}


def measure_cost(run: Row) -> Iterator[Row]:
    """Take vectors into a run of many, which remembers some thousands of them, again and again."""
    old, new, rng = run["old"], run["new"], np.random.default_rng(0)
    centres = rng.normal(size=(50, 256)).astype(np.float32)

    def draw(count: int) -> tuple[FloatArray, IntArray]:
        kind = rng.integers(50, size=count)
        return centres[kind] + 2 * rng.standard_normal((count, 256), np.float32), kind

    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        compute, vectors, (others, kinds) = Compute(cache=None), draw(KNOWN)[0], draw(new)
        first = train_target(vectors, place / "run", n_clusters=50, compute=compute).folder
        kept, features = read_remembered(first)
        rows = rng.integers(KNOWN, size=old)
        keys = [content_key(str(i).encode()) for i in range(old)]
        kept = replace(kept, ids=tuple(map(str, range(old))), own=kept.own[rows], keys=keys)
        write_remembered(first, replace(kept, partitions=kept.partitions[:128, rows]))
        noise = rng.standard_normal((old, features.shape[1]), np.float32)  # copies would have no distances
        write_features(first, features[rows] + 0.05 * noise)
        np.save(place / "new.npy", others)
        del kept, features, noise, vectors, others, keys
        seconds = time_call(lambda: update(first, place / "new.npy", place / "next", compute=compute))
        own = read_remembered(place / "next")[0].own[old:]
    peak = getrusage(RUSAGE_SELF).ru_maxrss / 2**20
    right = 100 * clustering_accuracy(own + 1, kinds)
    yield run | {"seconds": round(seconds, 1), "GiB": round(peak, 2), "right": round(right, 1)}


def jobs_of(domains: Sequence[Domain], seeds: int) -> Iterator[tuple[Row, Callable[[], Iterator[Row]]]]:
    """Yield all measurements, one seed after the other; what takes longest comes last."""
    for seed in range(seeds):
        measures = {"kinds": measure_kinds, "numbers": measure_numbers, "chains": measure_chains}
        for (kind, measure), domain in product(measures.items(), domains):
            run: Row = {"kind": kind, "domain": domain.name, "seed": seed}
            yield run, partial(measure, domain, run, seed)
        for draw, domain in product(range(seed * CONTROLS // seeds, (seed + 1) * CONTROLS // seeds), domains):
            run = {"kind": "control", "domain": domain.name, "draw": draw}
            yield run, partial(measure_control, domain, run, draw)
    for old, new in SIZES:
        run = {"kind": "cost", "old": old, "new": new}
        yield run, partial(measure_cost, run)


def means(runs: pd.DataFrame, columns: Sequence[str], digits: int) -> list[Row]:
    """Return the mean of some columns over the seeds of each domain, and over domains; digits count once."""
    by = runs.groupby("domain", sort=False)
    rows = [
        {"domain": name, "seeds": len(own)} | {c: f"{own[c].mean():.{digits}f}" for c in columns}
        for name, own in by
    ]
    of_domain = by[list(columns)].mean()
    styles = of_domain.index.str.startswith("digits")
    groups = {
        "all but cartoon": of_domain.index != "pacs cartoon",
        "all": of_domain.index != "",
        "chosen on": of_domain.index.isin(TUNED),
        "amazon, cartoon, sketch, digits": ~of_domain.index.isin(TUNED),
    }
    for name, chosen in groups.items():
        if not chosen.any():
            continue
        some = of_domain[chosen & ~styles]
        if (chosen & styles).any():
            some = pd.concat([some, of_domain[chosen & styles].mean().to_frame().T])
        rows.append(
            {"domain": f"**{name}**", "seeds": ""} | {c: f"{some[c].mean():.{digits}f}" for c in columns}
        )
    return rows


def page(rows: Sequence[Row]) -> str:
    """Write the tables of all records."""
    runs, text = pd.DataFrame(rows), INTRODUCTION
    numbers, chains, kinds, control, cost = (
        runs[runs["kind"] == kind].dropna(axis=1, how="all")
        for kind in ("numbers", "chains", "kinds", "control", "cost")
    )
    if len(numbers):
        shown = ["anew", "never", "update", "person", "kept", "kept anew", "proposals"]
        text += f"{NUMBERS}\n{table(means(numbers, shown, 1), 'lr' + 'r' * len(shown))}\n"
    if len(chains):
        text += f"{CHAINS}\n{table(means(chains, ['ten', 'one'], 1), 'lrrr')}\n"
    if len(kinds):
        shares = kinds.assign(
            found=100 * kinds["found"] / kinds["left out"],
            right=100 * kinds["rejected right"] / kinds["rejected"].clip(lower=1),
        ).rename(columns={"right": "waiting right"})
        shown = ["batch", "alone", "batch alarms", "alone alarms", "waiting right", "found", "made"]
        text += f"{KINDS}\n{table(means(shares, shown, 3), 'lr' + 'r' * len(shown))}\n"
    if len(control):
        counted = control.assign(made=control["made"] > 0, waiting=control["waiting"] > 0)
        some = [
            {
                "domain": name,
                "runs": len(own),
                "new cluster": own["made"].sum(),
                "waiting": own["waiting"].sum(),
            }
            for name, own in [*counted.groupby("domain", sort=False), ("**all**", counted)]
        ]
        text += f"{NONE_NEW}\n{table(some, 'lrrr')}\n"
    if len(cost):
        shown = ["old", "new", "seconds", "GiB", "right"]
        text += f"{COST}\n{table(cost[shown].astype({'old': int, 'new': int}), 'rrrrr')}\n"
    return text


if __name__ == "__main__":
    options = parser_of("Measure what updates keep and what they cost.").parse_args()
    found = [domain for domains in read_domains(options) for domain in domains]
    complete(__file__, jobs_of(found, options.seeds), page)
