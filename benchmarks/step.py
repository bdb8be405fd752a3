"""What a stage-1 step of PCD costs beyond the network: against a bare training loop on as many images.

Ours is the real stage: reading, crops, proportions, transport, CutMix, losses, update, logging. The
bare loop runs the same two forward passes of 64 images, one backward pass and one SGD step, and
nothing else. Both run in turn, several times; the ratio of their median steps is taken round by round.
The first steps of each are left out, and so is a whole first round: they pay for what is set up once,
above all for memory, which the process touches for the first time.

    python benchmarks/step.py [--precision 32-true|bf16-mixed] [--rounds 4] [--steps 6]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from ucds.backbones import build_backbone
from ucds.choices import Precision
from ucds.config import PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.samples import Kind, subset
from ucds.data.views import ImageView
from ucds.math.arrays import IntArray
from ucds.models import ClusteringModel
from ucds.source.pcd import learn_source
from ucds.training.optimiser import build_optimiser
from ucds.training.runtime import Runtime
from ucds.training.session import Session

BATCH, K, LIMIT = 64, 31, {"cpu": 1.05, "cuda": 1.15}


class RandomImages:
    """Random 256 x 256 images of two domains, in memory, which notes when a batch is asked for."""

    kind: Kind = "images"
    files: None = None

    def __init__(self, n: int) -> None:
        self.ids = tuple(str(i) for i in range(n))
        self.keys = tuple(i.to_bytes(16, "little") for i in range(n))
        self.domain = np.arange(n, dtype=np.int64) % 2
        self.domain_names = ("one", "two")
        self.fingerprint = "random"
        self.asked: list[float] = []
        self._images = np.random.default_rng(0).integers(256, size=(n, 3, 256, 256), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, index: IntArray) -> torch.Tensor:  # noqa: D102
        if len(index) == BATCH:
            self.asked.append(time.perf_counter())
        # By NumPy: PyTorch would start threads for it beside the model's. The cache reads without any too.
        return torch.from_numpy(self._images[index])


def new_model(device: torch.device) -> ClusteringModel:
    return ClusteringModel(build_backbone("resnet18", weights="none"), K).to(device)


def time_ours(images: RandomImages, precision: Precision) -> float:
    """Seconds of the median step of the real stage 1, over one epoch of ``images``."""
    runtime = Runtime(precision=precision)
    settings = PCDSettings(source_epochs=1, evaluations_per_stage=1)
    images.asked.clear()
    data = Dataset(images, ImageView())
    learn_source(Session(runtime, settings), new_model(runtime.device), data, subset(images, [0, 1]))
    # Batches are read one step ahead: the first two at the first step, then one as each step begins.
    return statistics.median(np.diff(images.asked[2:]).tolist())


def time_bare(steps: int, precision: Precision) -> float:
    """Seconds of the median step of a loop with nothing but the network and the optimiser."""
    runtime = Runtime(precision=precision)
    model = new_model(runtime.device)
    module, optimiser = runtime.place(model, build_optimiser(model, PCDSettings()))
    module.train()
    inputs = torch.randn(BATCH, 3, 224, 224, device=runtime.device)
    begun = []
    for _ in range(steps):
        first, second = module(inputs), module(inputs)
        optimiser.zero_grad(set_to_none=True)
        runtime.backward(first.logits.square().mean() + second.logits.square().mean())
        optimiser.step()
        first.logits[0, 0].item()  # waits for the device
        begun.append(time.perf_counter())
    return statistics.median(np.diff(begun).tolist())


def measure(precision: Precision, rounds: int, steps: int) -> str:
    images = RandomImages(steps * BATCH)
    pairs = []
    for number in range(1 + rounds):
        # Who goes first alternates, so that a drifting machine favours nobody.
        if number % 2:
            bare = time_bare(steps, precision)
            pairs.append((time_ours(images, precision), bare))
        else:
            ours = time_ours(images, precision)
            pairs.append((ours, time_bare(steps, precision)))
    pairs = pairs[1:]
    ratios = [ours / bare for ours, bare in pairs]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    return (
        f"| {precision} | {ours:.3f} | {bare:.3f} | {statistics.median(ratios):.3f} | {spread} | {rounds} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--precision", choices=["32-true", "bf16-mixed"], action="append")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    given = parser.parse_args()
    device = Runtime().device.type
    lines = [
        "# A stage-1 step against a bare loop",
        "",
        f"ResNet-18, 2 x {BATCH} images of 224 px a step, K = {K}, {device}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}. "
        f"Target: a ratio of at most {LIMIT[device]}.",
        "",
        "| precision | ours (s/step) | bare (s/step) | ratio, median | ratios | rounds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [measure(p, given.rounds, given.steps) for p in given.precision or ("32-true", "bf16-mixed")]
    text = "\n".join(lines) + "\n"
    print(text)
    Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
