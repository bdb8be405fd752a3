"""What a target owner gets for few queries: accuracy of its model, and agreement with the provider.

On the four handwriting styles of ``ucds demo``, each of two targets in turn: some of its images are
labelled by a provider trained on the other styles, chosen at random or well spread, and stages 2 and 3
run on all of its images. Ground truth is read for the scores only.

    python benchmarks/queries.py [--seeds 2] [--numbers 10,20,50,100]
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucds.backbones import Backbone, build_backbone
from ucds.backbones.oriented_edges import NAME
from ucds.config import PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.folders import scan_domains
from ucds.data.ground_truth import read_ground_truth
from ucds.data.images import ImageSamples
from ucds.data.samples import subset
from ucds.demo.digits import write_digits
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import score
from ucds.source.fit import fit_source
from ucds.target.ask import choose_spread
from ucds.target.fit import fit_target
from ucds.training.inputs import stored_size, view_for
from ucds.training.prediction import predict
from ucds.training.runtime import Runtime
from ucds.training.session import Session

SETTINGS, K, TARGETS = PCDSettings(tune="head"), 10, ("chalk", "neon")


@dataclass(frozen=True)
class Task:
    """One target, the labels of its provider, and the classes that both are scored against."""

    seed: int
    data: Dataset
    answers: NDArray[np.int64]
    classes: NDArray[np.int64]
    cache: Path

    def choose(self, number: int, spread: bool) -> list[int]:
        """Positions to have labelled."""
        if not spread:
            order = np.random.default_rng(self.seed).permutation(len(self.answers))
            return [int(i) for i in order[:number]]
        runtime = Runtime(accelerator="cpu", seed=self.seed)
        return list(choose_spread(self.data, edges(), runtime, number, cache=self.cache)({}))

    def train(self, chosen: list[int]) -> tuple[float, float]:
        """Accuracy, and the share of images on which the model and its provider agree."""
        ids = tuple(self.data.samples.ids[i] for i in chosen)
        labels = ClusterLabels(ids, self.answers[chosen], K, "provider")
        session = Session(Runtime(accelerator="cpu", seed=self.seed), SETTINGS)
        model = fit_target(
            session, edges(), self.data, K, labels.align(self.data.samples.ids), cache=self.cache
        ).model
        found = predict(model, self.data.samples, self.data.view, session.runtime, 256).argmax(-1).numpy()
        return score(found, self.classes).accuracy, float((found == self.answers).mean())


def edges() -> Backbone:
    return build_backbone(NAME, weights="none")


def tasks(folder: Path, target: str, seeds: int) -> Iterator[Task]:
    spec = edges().spec
    samples = ImageSamples.open(scan_domains(folder / "digits"), folder, size=stored_size(spec))
    truth = read_ground_truth(samples)
    assert truth is not None
    here = samples.domain == samples.domain_names.index(target)
    source = Dataset(subset(samples, np.flatnonzero(~here)), view_for(spec))
    data = Dataset(subset(samples, np.flatnonzero(here)), view_for(spec))
    for seed in range(seeds):
        session = Session(Runtime(accelerator="cpu", seed=seed), SETTINGS)
        model = fit_source(session, edges(), source, K, cache=folder).model
        answers = predict(model, data.samples, data.view, session.runtime, 256).argmax(-1).numpy()
        yield Task(seed, data, answers, truth.classes[here], folder)


def rows(folder: Path, seeds: int, numbers: list[int]) -> Iterator[str]:
    for target in TARGETS:
        found: dict[tuple[int, str], list[tuple[float, float]]] = {}
        provider = []
        for task in tasks(folder, target, seeds):
            provider.append(score(task.answers, task.classes).accuracy)
            everything = len(task.answers)
            for number in numbers:
                for way in ("random", "spread"):
                    outcome = task.train(task.choose(number, way == "spread"))
                    found.setdefault((number, way), []).append(outcome)
            found.setdefault((everything, "all"), []).append(task.train(list(range(everything))))
        yield f"| {target} | - | the provider itself | {100 * np.mean(provider):.1f} | 100.0 |"
        for (number, way), outcomes in sorted(found.items()):
            accuracy, agreement = 100 * np.array(outcomes).mean(0)
            yield f"| {target} | {number} | {way} | {accuracy:.1f} | {agreement:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--numbers", default="10,20,50,100")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        write_digits(Path(folder) / "digits")
        numbers = [int(number) for number in arguments.numbers.split(",")]
        table = list(rows(Path(folder), arguments.seeds, numbers))
    head = [
        "# Few queries",
        "",
        "Handwritten digits in the style of the target, 449 images; mean over "
        f"{arguments.seeds} seeds, cpu. `python benchmarks/queries.py`",
        "",
        "| target | queries | chosen | accuracy (%) | agrees with the provider (%) |",
        "| --- | --- | --- | --- | --- |",
    ]
    text = "\n".join([*head, *table]) + "\n"
    Path(__file__).with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
