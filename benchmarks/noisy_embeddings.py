"""What a provider sees in the embeddings of a client, and what noise on them costs the client.

    python benchmarks/noisy_embeddings.py measure office31.npz --targets webcam,dslr
    python benchmarks/noisy_embeddings.py measure pacs.npz --targets photo,art_painting
    python benchmarks/noisy_embeddings.py page

The files are those of `benchmarks/privacy.py prepare`. Of each data set a domain is the client's and all
others are the provider's, who trains with the method `consensus` and answers as its service does: each
embedding by itself, from the mean of its own domains. To see what it can find out it looks an embedding up in
a pool of images that everybody has, which is the whole data set, with the client's image or without it. Both
commands write the page anew from all runs in noisy_embeddings.jsonl.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from privacy import Features, clusters_in, load
from privacy_page import spread
from pydantic import Field
from records import Records, table

from ucds.backbones import identity_backbone
from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.labels.noise import Noise
from ucds.math.arrays import FloatArray
from ucds.math.metrics import score
from ucds.math.spaces import unit_rows
from ucds.models import ClusteringModel
from ucds.source.fit import fit_source
from ucds.training.runtime import Runtime
from ucds.training.session import Session

SCALES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
SHOWN = {
    "labels": "labels that are right",
    "image": "image found in the pool",
    "class_": "class of the nearest other image",
    "domain": "domain of the nearest other image",
}

PAGE = """# Embeddings in place of images

Written by `python benchmarks/noisy_embeddings.py page` from `noisy_embeddings.jsonl`. Features of
MobileNetV2; percent, mean +- deviation (seeds of source and noise). Noise of 1 is as long as the embedding
itself. A provider looks an embedding up in a pool, all images of the data set. "Image found in the pool": the
nearest of them is the client's own image. The other two columns tell of the nearest one if the pool lacks
that image.

{tables}
"""


@dataclass(frozen=True)
class Run:
    """What one noise left in a client's embeddings, in percent; see :data:`SHOWN`."""

    dataset: str
    target: str
    seed: int
    noise: float
    labels: float
    image: float
    class_: Annotated[float, Field(alias="class")]
    domain: float


def train(source: Features, seed: int) -> ClusteringModel:
    """Train a provider's model as `ucds train-source` does."""
    samples = VectorSamples(source.vectors, source.domain, source.names)
    session = Session(Runtime(accelerator="cpu", seed=seed), ConsensusSettings())
    backbone = identity_backbone(source.vectors.shape[1])
    return fit_source(session, backbone, Dataset(samples, VectorView()), clusters_in(source)).model.eval()


def answer(model: ClusteringModel, rows: FloatArray) -> NDArray[np.int64]:
    with torch.inference_mode():
        return np.asarray(model(torch.from_numpy(rows)).logits.argmax(1).numpy(), dtype=np.int64)


def look_up(sent: FloatArray, features: Features, client: NDArray[np.int64]) -> tuple[float, ...]:
    """Compute what the nearest images of a pool tell of image, class and domain, in percent."""
    cosines = unit_rows(sent) @ unit_rows(features.vectors).T
    found = cosines.argmax(1) == client
    cosines[np.arange(len(sent)), client] = -np.inf
    nearest = cosines.argmax(1)
    same = (numbers[nearest] == numbers[client] for numbers in (features.classes, features.domain))
    return tuple(round(100 * float(right.mean()), 2) for right in (found, *same))


def measure(options: argparse.Namespace) -> Iterator[Run]:
    """Send the embeddings of each target with each noise to the provider of each seed."""
    features = load(options.features)
    for target in options.targets.split(","):
        source, client = features.split(target)
        position = np.flatnonzero(features.domain == features.names.index(target))
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            model = train(source, seed)
            for scale in SCALES:
                sent = np.stack([Noise(scale, seed).add_to(row) for row in client.vectors])
                right = 100 * score(client.classes, answer(model, sent)).accuracy
                told = look_up(sent, features, position)
                yield Run(options.features.stem, target, seed, scale, round(right, 2), *told)


def page(runs: Sequence[Run]) -> str:
    """Write a table for each target."""
    parts = []
    for target, dataset in {run.target: run.dataset for run in runs}.items():
        rows = []
        for scale in SCALES:
            chosen = [run for run in runs if (run.target, run.noise) == (target, scale)]
            rows.append([f"{scale:g}", *(spread([getattr(run, name) for run in chosen]) for name in SHOWN)])
        parts.append(f"## {target} ({dataset})\n\n{table(['noise', *SHOWN.values()], rows)}")
    return PAGE.format(tables="\n\n".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("features", type=Path)
    measuring.add_argument("--targets", required=True)
    measuring.add_argument("--seeds", type=int, default=3)
    measuring.add_argument("--first-seed", type=int, default=0)
    measuring.set_defaults(measure=measure)
    commands.add_parser("page").set_defaults(measure=lambda _: ())
    options = parser.parse_args()
    records = Records(__file__, Run)
    for run in options.measure(options):
        records.add(run)
    records.write_page(page(records.runs))


if __name__ == "__main__":
    main()
