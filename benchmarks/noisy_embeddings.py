"""What a provider sees in the embeddings of a client, and what noise on them costs the client.

    python benchmarks/noisy_embeddings.py measure office31.npz --targets webcam,dslr
    python benchmarks/noisy_embeddings.py measure pacs.npz --targets photo,art_painting
    python benchmarks/noisy_embeddings.py page

The files are those of `benchmarks/privacy.py prepare`. Of each data set a domain is the client's and all
others are the provider's, who trains with the method `consensus` and answers as its service does: each
embedding by itself, from the mean of its own domains. To see what it can find out it looks an embedding up in
a pool of images that everybody has, which is the whole data set, with the client's image or without it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from privacy import Features, clusters_in, load
from privacy_page import spread, table

from ucds.backbones import identity_backbone
from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.files import append_line, write_text_atomically
from ucds.labels.noise import Noise
from ucds.math.arrays import FloatArray
from ucds.math.metrics import score
from ucds.math.spaces import unit_rows
from ucds.models import ClusteringModel
from ucds.source.fit import fit_source
from ucds.training.runtime import Runtime
from ucds.training.session import Session

SCALES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
RECORDS = Path(__file__).with_suffix(".jsonl")
SHOWN = {
    "labels": "labels that are right",
    "image": "image found in the pool",
    "class": "class of the nearest other image",
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


def train(source: Features, seed: int) -> ClusteringModel:
    """Train a provider's model as `ucds train-source` does."""
    samples = VectorSamples(source.vectors, source.domain, source.names)
    session = Session(Runtime(accelerator="cpu", seed=seed), ConsensusSettings())
    backbone = identity_backbone(source.vectors.shape[1])
    return fit_source(session, backbone, Dataset(samples, VectorView()), clusters_in(source)).model.eval()


def answer(model: ClusteringModel, rows: FloatArray) -> NDArray[np.int64]:
    with torch.inference_mode():
        return np.asarray(model(torch.from_numpy(rows)).logits.argmax(1).numpy(), dtype=np.int64)


def look_up(sent: FloatArray, features: Features, client: NDArray[np.int64]) -> dict[str, float]:
    """Compute what the nearest images of a pool tell, in percent."""
    cosines = unit_rows(sent) @ unit_rows(features.vectors).T
    found = cosines.argmax(1) == client
    cosines[np.arange(len(sent)), client] = -np.inf
    nearest = cosines.argmax(1)
    told = {
        "image": found,
        "class": features.classes[nearest] == features.classes[client],
        "domain": features.domain[nearest] == features.domain[client],
    }
    return {name: round(100 * float(right.mean()), 2) for name, right in told.items()}


def measure(options: argparse.Namespace) -> None:
    features = load(options.features)
    for target in options.targets.split(","):
        source, client = features.split(target)
        position = np.flatnonzero(features.domain == features.names.index(target))
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            model = train(source, seed)
            for scale in SCALES:
                sent = np.stack([Noise(scale, seed).add_to(row) for row in client.vectors])
                right = 100 * score(client.classes, answer(model, sent)).accuracy
                what = {"dataset": options.features.stem, "target": target, "seed": seed, "noise": scale}
                line = json.dumps({**what, "labels": round(right, 2), **look_up(sent, features, position)})
                append_line(RECORDS, line)
                print(line, flush=True)


def target_table(records: Sequence[dict[str, Any]], target: str) -> str:
    rows = []
    for scale in SCALES:
        chosen = [record for record in records if (record["target"], record["noise"]) == (target, scale)]
        rows.append([f"{scale:g}", *(spread([record[name] for record in chosen]) for name in SHOWN)])
    return table(rows, ["noise", *SHOWN.values()])


def write_page(options: argparse.Namespace) -> None:
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    targets = {record["target"]: record["dataset"] for record in records}
    parts = [
        f"## {target} ({dataset})\n\n{target_table(records, target)}" for target, dataset in targets.items()
    ]
    write_text_atomically(RECORDS.with_suffix(".md"), PAGE.format(tables="\n\n".join(parts)))


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
    measuring.set_defaults(run=measure)
    commands.add_parser("page").set_defaults(run=write_page)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
