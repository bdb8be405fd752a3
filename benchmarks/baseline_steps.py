"""What a training step costs: PCD's stage 1 and ACIDS's source stage, on the same ResNet-18.

Both are the real thing: reading, views, losses, update. PCD makes one step a batch, ACIDS two, one with
each of its heads. ACIDS runs on PCD's inputs, with PCD's batch and with its own of 162, and as in its own
paper, on edges at 64 pixels. Methods take turns, several rounds; medians are taken of the steps of a run
and then of the rounds. The first steps of a run and the whole first round are left out: they pay for
what is set up once.

    python benchmarks/baseline_steps.py [--precision 32-true|bf16-mixed] [--rounds 3] [--steps 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from step import BATCH, RandomImages, time_ours
from step import K as N_CLUSTERS
from torch import nn

from ucds.backbones import Backbone, build_backbone
from ucds.baselines.acids import learn_acids
from ucds.baselines.settings import ACIDSSettings
from ucds.baselines.sobel import sobel_backbone
from ucds.baselines.sub_heads import prepare_networks
from ucds.choices import Precision
from ucds.data.dataset import Dataset
from ucds.data.views import ImageView
from ucds.math.arrays import IntArray
from ucds.models import ClusteringModel
from ucds.training.runtime import Runtime
from ucds.training.session import Session

OWN_BATCH, PACS = 162, 7


class NotingImages(RandomImages):
    """Random images that note every time they are asked for a batch, of whatever size."""

    def read(self, index: IntArray) -> torch.Tensor:  # noqa: D102
        self.asked.append(time.perf_counter())
        return torch.from_numpy(self._images[index])


class Track(NamedTuple):
    """One way to run ACIDS."""

    title: str
    backbone: Callable[[], Backbone]
    batch: int
    crop: float


def resnet() -> Backbone:
    return build_backbone("resnet18", weights="none")


TRACKS = (
    Track("ACIDS on PCD's inputs, PCD's batch", resnet, BATCH, 7 / 8),
    Track("ACIDS on PCD's inputs", resnet, OWN_BATCH, 7 / 8),
    Track("ACIDS as in its paper", sobel_backbone, OWN_BATCH, 2 / 3),
)


def time_acids(track: Track, steps: int, precision: Precision) -> tuple[float, float]:
    """Seconds of the median step with the over-clustering head, and with the clusters' head."""
    images = NotingImages(steps * track.batch)
    settings = ACIDSSettings(source_epochs=1, batch_size=track.batch, crop=track.crop)
    session = Session(Runtime(precision=precision), settings)
    learn_acids(session, track.backbone(), Dataset(images, ImageView()), N_CLUSTERS)
    # Batches are read one step ahead: the first two of an epoch at its first step, then one as each begins.
    over, clusters = (
        statistics.median(np.diff(asked[2:]).tolist())
        for asked in (images.asked[:steps], images.asked[steps:])
    )
    return over, clusters


def measure(precision: Precision, rounds: int, steps: int) -> list[str]:
    images = RandomImages(steps * BATCH)
    ours: list[float] = []
    theirs: dict[str, list[tuple[float, float]]] = {track.title: [] for track in TRACKS}
    for _ in range(1 + rounds):
        ours.append(time_ours(images, precision))
        for track in TRACKS:
            theirs[track.title].append(time_acids(track, steps, precision))
    pcd = statistics.median(ours[1:])
    lines = [f"| {precision} | PCD, stage 1 | {2 * BATCH} x 224 px | {pcd:.3f} | - | {pcd:.3f} | 1.00 |"]
    for track in TRACKS:
        over, clusters = (statistics.median(row) for row in zip(*theirs[track.title][1:], strict=True))
        inputs = f"{2 * track.batch} x {track.backbone().spec.input_size} px"
        total = over + clusters
        figures = f"{clusters:.3f} | {over:.3f} | {total:.3f} | {total / pcd:.2f}"
        lines.append(f"| {precision} | {track.title} | {inputs} | {figures} |")
    return lines


def millions(module: nn.Module) -> str:
    return f"{sum(weight.numel() for weight in module.parameters()) / 1e6:.2f} M"


def count_acids(track: Track, n_clusters: int) -> str:
    data = Dataset(RandomImages(2), ImageView())
    session = Session(Runtime(accelerator="cpu"), ACIDSSettings())
    made, _ = prepare_networks(session, track.backbone(), data, n_clusters, name="count", cache=None)
    return millions(made.heads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--precision", choices=["32-true", "bf16-mixed"], action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    given = parser.parse_args()
    if given.steps < 4 or given.rounds < 1:
        parser.error("4 steps and 1 round are the least: the first steps are left out")
    device = Runtime().device.type
    lines = [
        "# A step of ACIDS against a step of PCD",
        "",
        f"ResNet-18, K = {N_CLUSTERS}, two source domains, {device}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, {given.rounds} rounds. The paper: PCD 0.16 s, ACIDS 0.44 s and 0.52 s.",
        "",
        "| precision | method | images a step | s/step, clusters | s/step, over-clusters | sum | to PCD |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    precisions: list[Precision] = given.precision or ["32-true"]
    for precision in precisions:
        lines += measure(precision, given.rounds, given.steps)
    lines += [
        "",
        "| parameters | K = 31 | K = 7 |",
        "| --- | --- | --- |",
        f"| PCD | {' | '.join(millions(ClusteringModel(resnet(), n)) for n in (N_CLUSTERS, PACS))} |",
    ]
    for track in TRACKS[1:]:
        counts = " | ".join(count_acids(track, n) for n in (N_CLUSTERS, PACS))
        lines.append(f"| {track.title} | {counts} |")
    text = "\n".join(lines) + "\n"
    print(text)
    Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
