"""Reads frozen features of real images for the scripts beside it, with the options that name them.

These scripts read ground truth for the scores only. What their pages tell is not said in them again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucds.data.ground_truth import read_ground_truth
from ucds.data.sources import find_samples
from ucds.demo.digits import write_digits
from ucds.training.features import frozen_features
from ucds.training.inputs import open_for_training
from ucds.training.options import Compute, EncoderOptions


@dataclass(frozen=True)
class Domain:
    """Frozen features of the images of one domain.

    Attributes:
        name: folder of the data set and of the domain, "pacs photo".
        vectors: ``(n, d)`` features.
        classes: ``(n,)`` class of each image.
    """

    name: str
    vectors: NDArray[np.float32]
    classes: NDArray[np.int64]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.classes.max()) + 1


Domains = Mapping[str, Sequence[Domain]]
"""Domains of a data set by encoder."""


def parser_of(description: str, seeds: int = 5) -> argparse.ArgumentParser:
    """Make a parser of the options by which a script learns where images and encoders are."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("data", nargs="*", type=Path, help="folders of data sets: domain/class/image")
    parser.add_argument(
        "--weights",
        action="append",
        metavar="ENCODER[=FILE]",
        help="encoder of the images; of several the better first, where each side has one of them",
    )
    parser.add_argument("--digits", action="store_true", help="the embedded digits too")
    parser.add_argument("--cache", type=Path, default=Compute().cache, help="folder of the cache of features")
    parser.add_argument("--seeds", type=int, default=seeds, help="number of seeds")
    return parser


def encoders_of(options: argparse.Namespace) -> list[EncoderOptions]:
    """Return the encoders that the options name."""
    return [EncoderOptions(*one.split("=", 1)) for one in options.weights or ["mobilenetv2_100"]]


def read_by_encoder(options: argparse.Namespace) -> list[Domains]:
    """Compute the features of every data set by every encoder; the digits have one of their own."""
    asked = [(path, encoders_of(options)) for path in options.data]
    with tempfile.TemporaryDirectory() as folder:
        if options.digits:
            write_digits(Path(folder) / "digits")
            asked.append((Path(folder) / "digits", [EncoderOptions("ucds/oriented_edges")]))
        return [
            {str(one.backbone): list(read_data_set(path, one, options.cache)) for one in used}
            for path, used in asked
        ]


def read_domains(options: argparse.Namespace) -> list[Sequence[Domain]]:
    """Compute the features of the domains of every data set by the first encoder."""
    return [next(iter(domains.values())) for domains in read_by_encoder(options)]


def read_data_set(path: Path, encoder: EncoderOptions, cache: Path) -> Iterator[Domain]:
    """Compute the features of the domains of one data set, or take them from the cache."""
    compute = Compute("cpu", cache=cache)
    inputs = open_for_training(find_samples(path, by_domain=True), encoder, compute)
    data = frozen_features(inputs.encoder, inputs.data, compute)
    truth = read_ground_truth(inputs.data.samples)
    if truth is None:
        raise SystemExit(f"{path} has no class folders")
    for number, name in enumerate(data.samples.domain_names):
        rows = np.flatnonzero(data.samples.domain == number)
        yield Domain(f"{path.name} {name}", data.samples.read(rows), truth.classes[rows])
