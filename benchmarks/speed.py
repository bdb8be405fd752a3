"""Times of the parts on which a user waits, each beside what one would take in its place.

`PARTS` says what is measured. The sides take turns; a ratio is the median over the rounds. Rows are kept in
speed.json, and the page is written from them: parts that are not measured again stay.

    python benchmarks/speed.py [PART ..] [--rounds 3] [--threads 1] [--images FOLDER .. --weights FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ot
import pandas as pd
import torch
from cluster_number import blobs
from ot.batch import bregman_log_projection_batch
from records import table, time_call
from sklearn.cluster import KMeans
from sklearn.manifold import trustworthiness
from sklearn.utils import gen_batches
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

import ucds
from ucds.data.dataset import Dataset, ImageView
from ucds.data.decode import ByteArray
from ucds.data.samples import Samples, subset
from ucds.data.sources import find_samples
from ucds.experiments.revision import code_revision
from ucds.gradients.runtime import Runtime
from ucds.gradients.session import Session
from ucds.gradients.source_stage import learn_source
from ucds.gradients.steps import build_optimiser
from ucds.gradients.transport import cosine_cost, solve_transport
from ucds.math.arrays import IntArray
from ucds.math.embedding import place_all
from ucds.math.spaces import unit_rows
from ucds.networks.build import build_network
from ucds.networks.model import ClusteringModel
from ucds.training.inputs import open_for_training

RUNS = Path(__file__).with_suffix(".json")
PAGE = """# Speed

Written by `python benchmarks/speed.py` from `speed.json`; not edited by hand. Times are medians over rounds
in which the sides take turns, and a ratio is the median of the rounds' ratios. Single times depend on what
else the machine does, ratios hardly.
"""
BACKBONE, CLUSTERS = "mobilenetv2_100", 31
EPSILON, TOLERANCE, LIMIT = 0.01, 1e-3, 50_000
SHAPES = ((1, 64, 31), (1, 1024, 65), (4, 64, 31))
BATCH = 64
STEPS = 6  # of a training loop

TARGETS = {
    ("webcam", "train-target"): 0.75,
    ("amazon", "train-target"): 0.35,
    ("webcam", "train-target again"): 0.3,
    ("webcam", "predict"): 0.22,
}
"""Largest ratio of a command's time to the bare pass, by folder of images and command."""
FIRST_LINE, REFUSAL = 1.0, 3.0  # seconds at most
RAY = ("--engine", "ray", "--workers")
FEATURES = ("images", "number", "what", "seconds", "images a second", "times the line above")

SHORT = ucds.PCDSettings(source_epochs=1, evaluations_per_stage=1)
Rows = Iterator[Sequence[str]]


def take_turns(rounds: int, sides: Mapping[str, Callable[[], object]]) -> pd.DataFrame:
    """Run sides in turn, and return the seconds of each; a round before the first is not timed.

    A side that is quick is repeated for 10 ms, so that it is not judged by cold caches.
    """
    seconds = pd.DataFrame(columns=list(sides), dtype=float)
    for number in range(rounds + 1):
        for name, side in sides.items():
            begun, calls = time.perf_counter(), 0
            while calls == 0 or time.perf_counter() - begun < 0.01:
                side()
                calls += 1
            seconds.loc[number, name] = (time.perf_counter() - begun) / calls
    return seconds[1:]


def problems() -> Iterator[tuple[str, str, Tensor, Tensor, Tensor]]:
    """Make transport problems: shape, geometry, costs, and weights of rows and columns.

    Random features with uniform proportions are the start of training. Clusters around the prototypes, of
    skewed sizes and with proportions that are skewed the other way round, are hard.
    """
    for domains, rows, columns in SHAPES:
        generator = torch.Generator().manual_seed(1)
        prototypes = torch.randn(columns, 256, generator=generator)
        sizes = 1 / torch.arange(1, columns + 1)
        members = torch.multinomial(sizes.expand(domains, -1), rows, replacement=True, generator=generator)
        noise = torch.randn(domains, rows, 256, generator=generator)
        skewed = (sizes.flip(0) / sizes.sum()).expand(domains, -1)
        equal = torch.full((domains, columns), 1 / columns)
        shape = f"{rows} x {columns}" if domains == 1 else f"{domains} x {rows} x {columns}"
        for name, features, proportions in (
            ("random", noise, equal),
            ("loose clusters", prototypes[members] + noise, skewed),
            ("tight clusters", prototypes[members] + 0.1 * noise, skewed),
        ):
            costs = cosine_cost(features, prototypes.T)
            yield shape, name, costs, torch.full((domains, rows), 1 / rows), proportions


def pot_solvers(cost: Tensor, rows: Tensor, columns: Tensor) -> dict[str, Callable[[], object]]:
    """Return POT's solvers, each with the loosest threshold that brings the marginal error down as asked."""

    def loop(kind: torch.dtype, threshold: float) -> Tensor:
        options: dict[str, Any] = {"method": "sinkhorn_log", "numItermax": LIMIT, "warn": False}
        parts = zip(rows.to(kind), columns.to(kind), cost.to(kind), strict=True)
        return torch.stack([ot.sinkhorn(*each, EPSILON, stopThr=threshold, **options) for each in parts])

    def batched(kind: torch.dtype, threshold: float) -> Tensor:
        parts = (-cost / EPSILON).to(kind), rows.to(kind), columns.to(kind)
        plan: Tensor = bregman_log_projection_batch(*parts, max_iter=LIMIT, tol=threshold)["T"]
        return plan

    solvers: dict[str, Callable[[], object]] = {}
    for name, solve in (("in a loop", loop), ("batched", batched))[: 1 + (len(cost) > 1)]:
        for kind, bits in ((torch.float32, "fp32"), (torch.float64, "fp64")):
            for threshold in TOLERANCE * 0.85 ** np.arange(30):
                if error_of(solve(kind, threshold), rows, columns) <= TOLERANCE:
                    solvers[f"{name}, {bits}"] = partial(solve, kind, threshold)
                    break
    return solvers


def error_of(plan: Tensor, rows: Tensor, columns: Tensor) -> float:
    """Return the largest L1 distance of the marginals of a batch of plans, in fp64."""
    plan = plan.double()
    by_row = (plan.sum(-1) - rows).abs().sum(-1)
    return float((by_row + (plan.sum(-2) - columns).abs().sum(-1)).max())


def measure_transport(options: argparse.Namespace) -> Rows:
    for shape, geometry, *problem in problems():
        ours = partial(solve_transport, *problem, epsilon=EPSILON, tolerance=TOLERANCE)
        assert error_of(ours().plan, *problem[1:]) <= TOLERANCE
        seconds = take_turns(3 * options.rounds, {"ours": ours} | pot_solvers(*problem))
        times = seconds.div(seconds["ours"], axis=0).median().drop("ours")
        fastest = times.idxmin()
        own, theirs = 1e3 * seconds[["ours", fastest]].median()
        yield shape, geometry, f"{own:.2f}", fastest, f"{theirs:.2f}", f"{times[fastest]:.1f}"


class RandomImages(Samples):
    """Random 256 x 256 images of two domains, in memory, which notes when a batch is asked for."""

    kind = "images"

    def __init__(self, n: int) -> None:
        super().__init__([str(i) for i in range(n)], np.arange(n) % 2, ("one", "two"))
        self.asked: list[float] = []
        self._images = np.random.default_rng(0).integers(256, size=(n, 3, 256, 256), dtype=np.uint8)

    def read(self, index: IntArray) -> ByteArray:  # noqa: D102
        if len(index) == BATCH:
            self.asked.append(time.perf_counter())
        return self._images[index]


def time_stage() -> float:
    """Return the seconds of the median step of the real stage 1, over one epoch."""
    images, session = RandomImages(STEPS * BATCH), Session(SHORT, ucds.Compute(cache=None))
    model = ClusteringModel(build_network("resnet18", weights="none"), 31).to(session.runtime.device)
    learn_source(session, model, Dataset(images, ImageView()), subset(images, [0, 1]))
    # Batches are read one step ahead: the first two at the first step, then one as each step begins.
    return float(np.median(np.diff(images.asked[2:])))


def time_bare_loop() -> float:
    """Return the seconds of the median step of a loop with nothing but the network and the optimiser."""
    runtime, ends = Runtime(ucds.Compute(cache=None)), []
    model = ClusteringModel(build_network("resnet18", weights="none"), 31).to(runtime.device)
    module, optimiser = runtime.place(model, build_optimiser(model, SHORT))
    module.train()
    inputs = torch.randn(BATCH, 3, 224, 224, device=runtime.device)
    for _ in range(STEPS):
        first, second = module(inputs), module(inputs)
        optimiser.zero_grad(set_to_none=True)
        runtime.backward(first.logits.square().mean() + second.logits.square().mean())
        optimiser.step()
        first.logits[0, 0].item()  # waits for the device
        ends.append(time.perf_counter())
    return float(np.median(np.diff(ends)))


def measure_step(options: argparse.Namespace) -> Rows:
    rounds = np.array([(time_stage(), time_bare_loop()) for _ in range(1 + options.rounds)])[1:]
    ours, bare = np.median(rounds, axis=0)
    ratio = np.median(rounds[:, 0] / rounds[:, 1])
    yield "32-true", f"{ours:.3f}", f"{bare:.3f}", f"{ratio:.3f}"


def measure_consensus(options: argparse.Namespace) -> Rows:
    for n in (5_000, 20_000, 50_000):
        data, rounds = blobs(50, n, seed=0), []
        for seed in range(options.rounds):
            ours = ucds.TargetClustering(50, random_state=seed, accelerator="cpu")
            theirs = KMeans(50, n_init=5, random_state=seed)
            own, other = (time_call(partial(method.fit, data.vectors)) for method in (ours, theirs))
            accuracies = (ucds.clustering_accuracy(one.labels_, data.classes) for one in (ours, theirs))
            rounds.append([own, other, own / other, *(100 * one for one in accuracies)])
        yield f"{n:,}", *(f"{one:.1f}" for one in np.median(rounds, axis=0))


def measure_second_opinion(options: argparse.Namespace) -> Rows:
    usual = ucds.ConsensusSettings()
    without = usual.model_copy(update={"second_opinion": replace(usual.second_opinion, draws=0)})
    for n in (3_000, 5_000, 20_000, 50_000):
        with tempfile.TemporaryDirectory() as folder:
            vectors, runs = blobs(50, n, seed=0).vectors, map(str, itertools.count())

            def fit(settings: ucds.ConsensusSettings) -> None:
                out, compute = Path(folder) / next(runs), ucds.Compute("cpu", cache=None)  # noqa: B023
                ucds.train_target(vectors, out, n_clusters=50, settings=settings, compute=compute)  # noqa: B023

            sides = {"with": partial(fit, usual), "without": partial(fit, without)}
            seconds = take_turns(options.rounds, sides)
        ratio = (seconds["with"] / seconds["without"]).median()
        yield f"{n:,}", *(f"{one:.2f}" for one in (*seconds.median(), ratio))


def measure_map(options: argparse.Namespace) -> Rows:
    for n in (1_000, 2_000, 10_000):
        vectors = unit_rows(blobs(50, n, seed=0).vectors)
        seconds = take_turns(options.rounds, {"map": partial(place_all, vectors)})
        kept = trustworthiness(vectors, place_all(vectors))
        yield f"{n:,}", f"{seconds['map'].median():.1f}", f"{kept:.3f}"


def measure_start(options: argparse.Namespace) -> Rows:
    """Time what a user waits for, on each folder of images."""
    encoder = ["--backbone", BACKBONE, "--weights", options.weights]
    with tempfile.TemporaryDirectory() as name:
        for images in options.images:
            folder = Path(name) / images.name
            bare = time_bare_pass(images, options, folder)
            yield images.name, "bare pass of the encoder", f"{bare:.1f}", "1.00", ""
            train = ["train-target", images, "--clusters", CLUSTERS, *encoder]
            for what, command in (
                ("train-target", [*train, "--out", folder / "run"]),
                ("train-target again", [*train, "--out", folder / "again"]),
                ("predict", ["predict", folder / "run", images, "--out", folder / "found.csv"]),
            ):
                took = time_command(command, folder / "cache")
                limit = TARGETS.get((images.name, what))
                yield images.name, what, f"{took:.1f}", f"{took / bare:.2f}", f"{limit:.2f}" if limit else ""
        wrong = ["train-target", "nowhere", "--clusters", CLUSTERS, "--out", Path(name) / "run"]
        first = time_first_line(wrong, Path(name))
        yield "", "first line on a terminal", f"{first:.2f}", "", f"{FIRST_LINE:.0f} s"
        refusal = time_command(wrong, Path(name), status=2)
        yield "", "refusal of a wrong input", f"{refusal:.2f}", "", f"{REFUSAL:.0f} s"


def measure_features(ways: Mapping[str, Sequence[str] | None], options: argparse.Namespace) -> Rows:
    """Time the features of each folder of images in several ways; ``None`` is the bare pass."""
    for images in options.images:
        number, before = len(find_samples(images, by_domain=False).ids), 0.0
        for what, how in ways.items():
            with tempfile.TemporaryDirectory() as name:
                if how is None:
                    took = time_bare_pass(images, options, Path(name))
                else:
                    words = ["features", images, "--out", Path(name) / "out", "--backbone", BACKBONE]
                    took = time_command([*words, "--weights", options.weights, *how], Path(name) / "cache")
            rate, times = f"{number / took:.0f}", f"{before / took:.2f}" if before else ""
            yield images.name, f"{number:,}", what, f"{took:.1f}", rate, times
            before = took


def time_bare_pass(images: Path, options: argparse.Namespace, folder: Path) -> float:
    """Return the seconds that the encoder alone takes for all images, in batches that are ready."""
    torch.set_num_threads(os.cpu_count() or 1)
    compute = ucds.Compute("cpu", cache=folder / "bare")
    found = find_samples(images, by_domain=False)
    network = build_network(BACKBONE, weights=options.weights)
    data, module, seconds = open_for_training(found, network, compute).data, network.module.eval(), 0.0
    for part in gen_batches(len(data.samples), BATCH):
        batch = torch.from_numpy(data.view.test(data.samples.read(np.arange(part.start, part.stop))))
        with torch.no_grad():
            seconds += time_call(partial(module, batch))
    return seconds


def time_command(arguments: Sequence[object], cache: Path, status: int = 0) -> float:
    """Return the seconds of a command on all processors, which ends with a status."""
    begun = time.perf_counter()
    done = subprocess.run(**command_line(arguments, cache), capture_output=True, text=True)
    took = time.perf_counter() - begun
    if done.returncode != status:
        raise SystemExit(f"the command ended with {done.returncode}: {done.stderr}")
    return took


def time_first_line(arguments: Sequence[object], cache: Path) -> float:
    """Return the seconds until a command shows something on a terminal."""
    own, terminal = pty.openpty()
    begun = time.perf_counter()
    with subprocess.Popen(**command_line(arguments, cache), stderr=terminal) as process:
        os.read(own, 1)
        took = time.perf_counter() - begun
        process.kill()
    os.close(own)
    os.close(terminal)
    return took


def command_line(arguments: Sequence[object], cache: Path) -> dict[str, Any]:
    """Return a command that has all processors, and a cache of its own, as :mod:`subprocess` takes it."""
    usual = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "ucds", *map(str, arguments)]
    return {"args": command, "env": usual | {"XDG_CACHE_HOME": str(cache), "TERM": "xterm"}}


def processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


PARTS: dict[str, tuple[Callable[[argparse.Namespace], Rows], str, Sequence[str]]] = {
    "transport": (
        measure_transport,
        "Cold starts, epsilon 0.01, fp32 costs of (domains x) samples x clusters. POT stops as soon as its "
        "L1 marginal error is at most 0.001. Targets: at least 5 times as fast as the fastest POT on "
        "clusters, at least as fast on random features.",
        ("problem", "geometry", "ours (ms)", "fastest POT", "its time (ms)", "times ours"),
    ),
    "step": (
        measure_step,
        "ResNet-18, 2 x 64 images of 224 px a step, K = 31, fp32. Target: at most 1.05 times the bare loop.",
        ("precision", "ours (s/step)", "bare (s/step)", "ratio"),
    ),
    "consensus": (
        measure_consensus,
        "Embeddings of 512 numbers in 50 clusters. `KMeans(50, n_init=5)` is its rival.",
        ("samples", "ours (s)", "k-means (s)", "ratio", "our accuracy (%)", "its accuracy (%)"),
    ),
    "second opinion": (
        measure_second_opinion,
        "The same embeddings, fitted alone with the second opinion and without. Target: at most 2.5 times.",
        ("samples", "with (s)", "without (s)", "ratio"),
    ),
    "map": (
        measure_map,
        "The same embeddings in the plane, on one thread. Targets: 8 s at 10,000 samples.",
        ("samples", "seconds", "trustworthiness"),
    ),
    "start": (
        measure_start,
        "Commands on all processors, from an empty cache: the graph of the encoder is made on the way. The "
        "bare pass is the encoder in PyTorch, fp32, on inputs that are ready. One round.",
        ("images", "what", "seconds", "times the bare pass", "at most"),
    ),
    "features": (
        partial(measure_features, {"bare pass": None, "plain loop": []}),
        "`ucds features` from an empty cache, on all processors, start and decoding included. Target: at "
        "least 3 times as fast as the bare pass.",
        FEATURES,
    ),
    "ray": (
        partial(measure_features, {"one worker": [*RAY, "1"], "two workers": [*RAY, "2"]}),
        "`ucds features` on Ray, as above. Each worker has one processor; Ray's own processes, and the one "
        "that collects the parts, need more. Target: two workers at least 1.7 times as fast as one.",
        FEATURES,
    ),
}
"""How each part is measured, what it is, and the columns of its table."""


def page(runs: Mapping[str, Any]) -> str:
    """Write the tables of all parts that were measured."""
    text = PAGE
    for part, (_, what, columns) in PARTS.items():
        if part in runs:
            rows = pd.DataFrame(runs[part]["rows"], columns=columns)
            text += f"\n## {part}\n\n{what}\n\n{table(rows)}\n\n{runs[part]['machine']}\n"
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    usual = ["transport", "step", "consensus", "second opinion", "map"]
    parser.add_argument("parts", nargs="*", default=usual, help="parts; those without images by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--images", type=Path, nargs="+", help="folders of images, for start, features, ray")
    parser.add_argument("--weights", default="default", help="weights of the encoder")
    options = parser.parse_args()
    if options.images is None and {"start", "features", "ray"} & set(options.parts):
        parser.error("the parts start, features and ray need --images and --weights")
    runs = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    torch.set_num_threads(options.threads)
    with threadpool_limits(options.threads):
        for part in options.parts:
            load, (measure, _, columns) = os.getloadavg()[0], PARTS[part]
            rows = list(measure(options))
            print(pd.DataFrame(rows, columns=columns), flush=True)
            machine = (
                f"{processor()}, {options.threads} of {os.cpu_count()} processors, load {load:.1f}, "
                f"{options.rounds} rounds, torch {torch.__version__}, revision {code_revision()}."
            )
            runs[part] = {"machine": machine, "rows": rows}
            RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    RUNS.with_suffix(".md").write_text(page(runs))
