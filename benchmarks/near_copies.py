"""How well near-copies of images are told from honest images, and what refusing them takes from an attack.

    python benchmarks/near_copies.py hashes /data/office31 /data/pacs --cache CACHE
    python benchmarks/near_copies.py attack /data/office31 --weights FILE --cache CACHE --allowed 4
    python benchmarks/near_copies.py page

`hashes` asks in the order of a shuffle about all images of a domain, as an honest client does, and counts
those that the rule would refuse; and it hashes changed copies of images. `attack` trains a source that is
over-fitted on purpose, on 200 images with 100 prototypes, serves it over HTTP on loopback, and audits the
service with and without the rule. Every line of near_copies.jsonl is one measurement, and each command writes
the page anew from all of them.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from queue import Queue
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from records import Records, table

from ucds.auditing.audit import Effort, audit
from ucds.config import ConsensusSettings
from ucds.labels.client import LabelClient
from ucds.math.perceptual_hash import Hashes, count_different_bits, hash_images
from ucds.serving.ledger import Ledger
from ucds.serving.serve import serve
from ucds.serving.server import Address
from ucds.serving.settings import NearCopies
from ucds.source.train import train_source
from ucds.training.options import CacheOptions, EncoderOptions

SIDE = 256
BITS = (48, 64, 80)
ALLOWED = (0, 1, 2, 4, 8, 16)
COPIED = 30  # images of each domain of which copies are made
EFFORT = Effort(samples=60, variants=6, boundary=8, steps=2, shadows=8)

Picture = Image.Image
Change = Callable[[Picture, np.random.Generator], Picture]

PAGE = """# Near-copies of images

Written by `python benchmarks/near_copies.py page` from `near_copies.jsonl`. A hash has 255 bits; two images
are near-copies if at most so many bits differ, from the one or from its mirror image.

## Honest images that would be refused

Of a thousand images of a domain, asked about in a random order, by the near-copies that are allowed. Up to
{most} images of a domain.

{honest}

## Copies that are recognised

Percent of {copied} images of each domain.

{copies}

## What an attack on membership gains

Office-31, {members} members and as many others, of a source that was over-fitted on purpose. Area under the
curve, in brackets its 95 % interval. "Paid": distinct images that the key was charged for.

{attacks}
"""


@dataclass(frozen=True)
class Honest:
    """Number of a domain's images that would be refused, by "bits/allowed near-copies"."""

    what: Literal["honest"]
    dataset: str
    domain: str
    images: int
    refused: dict[str, int]


@dataclass(frozen=True)
class Copies:
    """Bits in which the hashes of some images differ from those of copies with one change."""

    what: Literal["copies"]
    dataset: str
    domain: str
    change: str
    bits: list[int]


@dataclass(frozen=True)
class Attack:
    """Audit of a service that allows some near-copies, or any number, and the images that were paid for."""

    what: Literal["attack"]
    encoder: str
    allowed: int | None
    paid: int
    found: dict[str, Any]


def read_pictures(data: Path, names: str | None, most: int) -> Iterator[tuple[str, list[Picture]]]:
    """Yield the decoded images of each domain, in a random order."""
    wanted = [data / name for name in names.split(",")] if names else data.iterdir()
    for domain in sorted(folder for folder in wanted if folder.is_dir()):
        files = sorted(path for path in domain.rglob("*") if path.is_file())
        order = np.random.default_rng(0).permutation(len(files))[:most]
        yield domain.name, [Image.open(files[i]).convert("RGB").resize((SIDE, SIDE)) for i in order]


def hash_pictures(pictures: Sequence[Picture]) -> Hashes:
    return np.concatenate([hash_images(np.asarray(one).transpose(2, 0, 1)[None]) for one in pictures])


def count_refused(near: NDArray[np.bool_], allowed: int) -> int:
    """Count the images that the service refuses, of which each is near some of those before it."""
    answered = np.zeros(len(near), dtype=bool)
    for i, row in enumerate(near):
        answered[i] = row[:i][answered[:i]].sum() <= allowed
    return int((~answered).sum())


def crop(share: float) -> Change:
    def change(picture: Picture, rng: np.random.Generator) -> Picture:
        side = round(SIDE * share)
        left, top = (int(place) for place in rng.integers(0, SIDE - side + 1, 2))
        return picture.crop((left, top, left + side, top + side)).resize((SIDE, SIDE))

    return change


def rotate(degrees: float) -> Change:
    return lambda picture, rng: picture.rotate(degrees * rng.choice([-1, 1]), Image.Resampling.BILINEAR)


def disturb(deviation: float) -> Change:
    def change(picture: Picture, rng: np.random.Generator) -> Picture:
        noisy = np.asarray(picture) + deviation * rng.standard_normal((SIDE, SIDE, 3))
        return Image.fromarray(np.clip(noisy.round(), 0, 255).astype(np.uint8))

    return change


def compress(quality: int) -> Change:
    def change(picture: Picture, rng: np.random.Generator) -> Picture:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return change


def mirror(picture: Picture, rng: np.random.Generator) -> Picture:
    return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


CHANGES: dict[str, Change] = {
    "mirrored": mirror,
    "JPEG, quality 30": compress(30),
    "darker, 0.7": lambda picture, rng: picture.point(lambda value: 0.7 * value),
    "brighter, 1.3": lambda picture, rng: picture.point(lambda value: min(255, 1.3 * value)),
    "blurred, 1 pixel": lambda picture, rng: picture.filter(ImageFilter.BoxBlur(1)),
    "noise of 12": disturb(12),
    "noise of 48": disturb(48),
    "noise of 128": disturb(128),
    "turned by 3 degrees": rotate(3),
    "turned by 5 degrees": rotate(5),
    "turned by 10 degrees": rotate(10),
    "crop of 95 %": crop(0.95),
    "crop of 90 %": crop(0.9),
    "crop of 80 %": crop(0.8),
    "mirrored crop of 95 %": lambda picture, rng: crop(0.95)(mirror(picture, rng), rng),
}


def measure_hashes(options: argparse.Namespace) -> Iterator[Honest | Copies]:
    for data in options.data:
        for domain, pictures in read_pictures(data, options.domains, options.most):
            hashes, rng = hash_pictures(pictures), np.random.default_rng(1)
            different = count_different_bits(hashes, hashes)
            refused = {
                f"{bits}/{allowed}": count_refused(different <= bits, allowed)
                for bits in BITS
                for allowed in ALLOWED
            }
            yield Honest("honest", data.name, domain, len(pictures), refused)
            for name, change in CHANGES.items():
                copied = hash_pictures([change(picture, rng) for picture in pictures[:COPIED]])
                found = count_different_bits(hashes[:COPIED], copied).diagonal()
                yield Copies("copies", data.name, domain, name, found.tolist())


def measure_attack(options: argparse.Namespace) -> Iterator[Attack]:
    encoder = EncoderOptions(options.backbone, options.weights, options.image_size)
    cache = CacheOptions(options.cache)
    files = sorted(path for path in options.data[0].rglob("*") if path.is_file())
    chosen = np.random.default_rng(3).permutation(len(files))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, part in (("members", chosen[:200]), ("others", chosen[200:400])):
            (folder / side / "all").mkdir(parents=True)
            for i in part:
                shutil.copy(files[i], folder / side / "all" / f"{i}{files[i].suffix}")
        members, run = folder / "members", folder / "run"
        settings = ConsensusSettings(starts=1)
        train_source(members, run, 100, encoder=encoder, settings=settings, cache=cache)
        ledger = Ledger(run)
        key = ledger.add_key("attacker", 1_000_000)
        rule = None if options.allowed is None else NearCopies("refuse", options.allowed)
        with running(run, rule) as url, LabelClient(url, key, timeout=600, patience=3600) as client:
            report = folder / "report.html"
            found = audit(
                None,
                members,
                folder / "others",
                report,
                client=client,
                encoder=encoder,
                effort=EFFORT,
                cache=cache,
            )
        paid = ledger.list_keys()[0].used
        ledger.close()
    yield Attack("attack", options.backbone, options.allowed, paid, found.to_dict())


@contextmanager
def running(run: Path, rule: NearCopies | None) -> Iterator[str]:
    """Serve a run on loopback, in a thread, for as long as the context lasts; its URL is given."""
    stop, up = threading.Event(), Queue[str]()
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve, run, Address(port=0), near_copies=rule, ready=up.put, stop=stop)
        try:
            yield up.get(timeout=120)
        finally:
            stop.set()
            serving.result()


def honest_table(runs: Sequence[Honest]) -> str:
    """Refused images in a thousand, by domain, bits and allowed near-copies."""
    rows = []
    for run, bits in product(runs, BITS):
        shares = (1000 * run.refused[f"{bits}/{allowed}"] / run.images for allowed in ALLOWED)
        rows.append([f"{run.dataset}, {run.domain}", str(bits), *(f"{share:.0f}" for share in shares)])
    return table(["domain", "bits", *(f"{allowed} allowed" for allowed in ALLOWED)], rows)


def copies_table(runs: Sequence[Copies]) -> str:
    """Percent of copies that are recognised, by change, data set and bits."""
    datasets = list(dict.fromkeys(run.dataset for run in runs))
    rows = []
    for change in CHANGES:
        cells = []
        for dataset in datasets:
            same = [run.bits for run in runs if (run.dataset, run.change) == (dataset, change)]
            cells += [f"{100 * (np.concatenate(same) <= bits).mean():.0f}" for bits in BITS]
        rows.append([change, *cells])
    return table(["change", *(f"{dataset}, {bits} bits" for dataset in datasets for bits in BITS)], rows)


def attack_table(runs: Sequence[Attack]) -> str:
    """Success of the attacks, by the rule of the service."""
    rows = []
    for run in runs:
        areas = [attack["success"] for attack in run.found["membership"][:2]]
        name = "all are answered" if run.allowed is None else f"{run.allowed} near-copies are allowed"
        shown = [f"{one['auc']:.2f} ({one['auc_low']:.2f} to {one['auc_high']:.2f})" for one in areas]
        counts = (run.found["queries"], run.found["refused"], run.paid)
        rows.append([run.encoder, name, *shown, *(f"{count:,}" for count in counts)])
    return table(["encoder", "rule", "agreement", "boundary", "queries", "refused", "paid"], rows)


def page(runs: Sequence[Honest | Copies | Attack]) -> str:
    """Write the tables of all records."""
    honest = [run for run in runs if isinstance(run, Honest)]
    return PAGE.format(
        most=f"{max((run.images for run in honest), default=0):,}",
        copied=COPIED,
        members=EFFORT.samples,
        honest=honest_table(honest),
        copies=copies_table([run for run in runs if isinstance(run, Copies)]),
        attacks=attack_table([run for run in runs if isinstance(run, Attack)]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, measure in (("hashes", measure_hashes), ("attack", measure_attack)):
        command = commands.add_parser(name)
        command.add_argument("data", type=Path, nargs="+")
        command.add_argument("--backbone", default="mobilenetv2_100")
        command.add_argument("--weights", default="default")
        command.add_argument("--image-size", type=int)
        command.add_argument("--cache", type=Path)
        command.add_argument("--domains", help="all without")
        command.add_argument("--most", type=int, default=1000, help="images of each domain")
        command.add_argument(
            "--allowed", type=int, help="near-copies that are allowed; none are refused without"
        )
        command.set_defaults(measure=measure)
    commands.add_parser("page").set_defaults(measure=lambda _: ())
    options = parser.parse_args()
    records = Records(__file__, Honest | Copies | Attack)
    for run in options.measure(options):
        records.add(run)
    records.write_page(page(records.runs))


if __name__ == "__main__":
    main()
