"""Time of the whole client side of the consensus method against scikit-learn's k-means, on CPU.

Blobs of 512 numbers in 50 clusters. Ours is what `TargetClustering.fit` does: spaces, votes, consensus,
stability and the fit of the model. Theirs is `KMeans(50, n_init=5)` on the same numbers. Both run in turn,
again and again; the ratio is the median over the rounds. Seconds of the three parts of ours come from the
same rounds: the vote and its stability ("agree"), the fit of the model ("fit"), and what is left.

    python benchmarks/consensus.py [--samples 5000,20000,50000] [--rounds 3] [--threads N] [--out FILE]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds import TargetClustering
from ucds.math.metrics import score

K, WIDTH, NOISE = 50, 512, 1.2


@dataclass(frozen=True)
class Round:
    """Seconds of both sides on one set of samples, and their accuracies."""

    ours: float
    agreeing: float
    fitting: float
    theirs: float
    accuracy: float
    their_accuracy: float


def blobs(samples: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Embeddings of which the 50 directions of the clusters take up a small part, and their clusters."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(K, WIDTH)) / 4
    truth = rng.integers(K, size=samples)
    scales = NOISE / np.sqrt(1 + np.arange(WIDTH) / 16)
    return (centres[truth] + scales * rng.normal(size=(samples, WIDTH))).astype(np.float32), truth


def measure(vectors: NDArray[np.float32], truth: NDArray[np.int64], seed: int) -> Round:
    """Fit both, one after the other."""
    begin = time.perf_counter()
    ours = TargetClustering(K, random_state=seed, accelerator="cpu").fit(vectors)
    middle = time.perf_counter()
    theirs = KMeans(K, n_init=5, random_state=seed).fit(vectors)
    end = time.perf_counter()
    agreeing, fitting = (stage.seconds for stage in ours.stages_)
    return Round(
        middle - begin,
        agreeing,
        fitting,
        end - middle,
        score(ours.labels_, truth).accuracy,
        score(theirs.labels_, truth).accuracy,
    )


def row(samples: int, rounds: list[Round]) -> str:
    """The line of the table for one number of samples."""

    def middle(name: str) -> float:
        return float(statistics.median(getattr(one, name) for one in rounds))

    ratio = statistics.median(one.ours / one.theirs for one in rounds)
    return (
        f"| {samples:,} | {middle('ours'):.1f} | {middle('agreeing'):.1f} | {middle('fitting'):.1f} "
        f"| {middle('theirs'):.1f} | {ratio:.1f} | {100 * middle('accuracy'):.1f} "
        f"| {100 * middle('their_accuracy'):.1f} |"
    )


def report(sizes: list[int], rounds: int, threads: int) -> str:
    lines = []
    for samples in sizes:
        vectors, truth = blobs(samples)
        lines.append(row(samples, [measure(vectors, truth, seed) for seed in range(rounds)]))
        print(lines[-1], flush=True)
    head = (
        "# The consensus method against k-means\n\n"
        "Made by `python benchmarks/consensus.py`; not edited by hand.\n\n"
        f"Embeddings of {WIDTH} numbers in {K} clusters. Ours: `TargetClustering({K}).fit`. Theirs: "
        f"`KMeans({K}, n_init=5).fit`.\nMedians of {rounds} rounds in which both run in turn; the ratio is "
        "the median over the rounds.\n\n"
        f"torch {torch.__version__}, scikit-learn {sklearn.__version__}, Python "
        f"{platform.python_version()}, {platform.machine()}, CPU, {threads} "
        f"thread{'s' if threads > 1 else ''}.\n\n"
        "| samples | ours (s) | of which agree | of which fit | k-means (s) | ratio | our accuracy (%) "
        "| its accuracy (%) |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    return head + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the consensus method against k-means.")
    parser.add_argument("--samples", default="5000,20000,50000", help="numbers of samples")
    parser.add_argument("--rounds", type=int, default=3, help="rounds for each number of samples")
    parser.add_argument("--threads", type=int, default=1, help="threads of both")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    torch.set_num_threads(options.threads)
    sizes = [int(samples) for samples in options.samples.split(",")]
    with threadpool_limits(options.threads):
        options.out.write_text(report(sizes, options.rounds, options.threads), encoding="utf-8")


if __name__ == "__main__":
    main()
