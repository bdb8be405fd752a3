"""What laying convolutions' weights out channels last is worth: a training step with and without.

Forward, backward and update of a backbone as `build_backbone` makes it, against the same one with its weights
as PyTorch lays them out. The two take turns, several rounds; a first round, which pays for what is set up
once, is left out.

    python benchmarks/memory_format.py [--rounds 4] [--steps 2] [--batch 16]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from torch import nn

from ucds.backbones import build_backbone
from ucds.choices import Precision
from ucds.training.runtime import Runtime

BACKBONES = ("resnet18", "mobilenetv2_100")
PRECISIONS: tuple[Precision, ...] = ("32-true", "bf16-mixed")


def as_built(name: str) -> nn.Module:
    return build_backbone(name, weights="none").module


def as_usual(name: str) -> nn.Module:
    module = as_built(name)
    for weight in module.parameters():
        weight.data = weight.contiguous()
    return module


class Trainee:
    """A backbone that learns to return zeros for random images."""

    def __init__(self, module: nn.Module, precision: Precision, batch: int) -> None:
        self._runtime = Runtime(precision=precision)
        module.to(self._runtime.device)
        optimiser = torch.optim.SGD(module.parameters(), lr=1e-4)
        self._module, self._optimiser = self._runtime.place(module, optimiser)
        self._inputs = torch.rand(batch, 3, 224, 224, device=self._runtime.device)

    def seconds(self, steps: int) -> float:
        """Measure the mean seconds of one step."""
        self._module.train()
        begun = time.perf_counter()
        for _ in range(steps):
            self._optimiser.zero_grad(set_to_none=True)
            loss = self._module(self._inputs).square().mean()
            self._runtime.backward(loss)
            self._optimiser.step()
        loss.item()  # waits for the device
        return (time.perf_counter() - begun) / steps


def measure(name: str, precision: Precision, rounds: int, steps: int, batch: int) -> str:
    usual, built = (Trainee(make(name), precision, batch) for make in (as_usual, as_built))
    pairs = []
    for number in range(1 + rounds):
        # Who goes first alternates, so that a drifting machine favours nobody.
        if number % 2:
            before = usual.seconds(steps)
            pairs.append((before, built.seconds(steps)))
        else:
            after = built.seconds(steps)
            pairs.append((usual.seconds(steps), after))
    ratios = [after / before for before, after in pairs[1:]]
    before, after = (statistics.median(column) for column in zip(*pairs[1:], strict=True))
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    ratio = statistics.median(ratios)
    return f"| {name} | {precision} | {before:.3f} | {after:.3f} | {ratio:.2f} | {spread} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()
    lines = [
        "# A training step with weights channels last, against the usual layout",
        "",
        f"{given.batch} images of 224 px a step, {Runtime().device.type}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, {given.rounds} rounds.",
        "",
        "| backbone | precision | usual (s/step) | channels last (s/step) | ratio, median | ratios |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in BACKBONES:
        for precision in PRECISIONS:
            lines.append(measure(name, precision, given.rounds, given.steps, given.batch))
    text = "\n".join(lines) + "\n"
    print(text)
    Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
