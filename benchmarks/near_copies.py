"""How well near-copies of images are told from honest images, and what refusing them takes from an attack.

    python benchmarks/near_copies.py hashes /data/office31 /data/pacs --cache CACHE
    python benchmarks/near_copies.py attack /data/office31 --weights FILE --cache CACHE --allowed 4
    python benchmarks/near_copies.py page

`hashes` asks in the order of a shuffle about all images of a domain, as an honest client does, and counts
those that the rule would refuse; and it hashes changed copies of images. `attack` trains a source that is
over-fitted on purpose, on 200 images with 100 prototypes, serves it over HTTP on loopback, and audits the
service with and without the rule. Every line of near_copies.jsonl is one measurement.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from ucds.auditing.audit import Effort, audit
from ucds.config import ConsensusSettings
from ucds.files import append_line, write_text_atomically
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
RECORDS = Path(__file__).with_suffix(".jsonl")
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


def keep(**entries: Any) -> None:
    """Add a line to the records, and show it."""
    line = json.dumps(entries)
    append_line(RECORDS, line)
    print(line[:160], flush=True)


def measure_hashes(options: argparse.Namespace) -> None:
    for data in options.data:
        for domain, pictures in read_pictures(data, options.domains, options.most):
            what = {"dataset": data.name, "domain": domain}
            hashes, rng = hash_pictures(pictures), np.random.default_rng(1)
            different = count_different_bits(hashes, hashes)
            refused = {
                f"{bits}/{allowed}": count_refused(different <= bits, allowed)
                for bits in BITS
                for allowed in ALLOWED
            }
            keep(what="honest", **what, images=len(pictures), refused=refused)
            for name, change in CHANGES.items():
                copied = hash_pictures([change(picture, rng) for picture in pictures[:COPIED]])
                found = count_different_bits(hashes[:COPIED], copied).diagonal()
                keep(what="copies", **what, change=name, bits=found.tolist())


def measure_attack(options: argparse.Namespace) -> None:
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
    keep(what="attack", encoder=options.backbone, allowed=options.allowed, paid=paid, found=found.to_dict())


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


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def honest_table(records: Sequence[dict[str, Any]]) -> str:
    """Refused images in a thousand, by domain, bits and allowed near-copies."""
    chosen = [record for record in records if record["what"] == "honest"]
    rows = [
        [
            f"{record['dataset']}, {record['domain']}",
            str(bits),
            *(
                f"{1000 * record['refused'][f'{bits}/{allowed}'] / record['images']:.0f}"
                for allowed in ALLOWED
            ),
        ]
        for record in chosen
        for bits in BITS
    ]
    return table(["domain", "bits", *(f"{allowed} allowed" for allowed in ALLOWED)], rows)


def copies_table(records: Sequence[dict[str, Any]]) -> str:
    """Percent of copies that are recognised, by change, data set and bits."""
    chosen = [record for record in records if record["what"] == "copies"]
    datasets = list(dict.fromkeys(record["dataset"] for record in chosen))
    rows = []
    for change in CHANGES:
        cells = []
        for dataset in datasets:
            found = np.concatenate(
                [
                    record["bits"]
                    for record in chosen
                    if (record["dataset"], record["change"]) == (dataset, change)
                ]
            )
            cells += [f"{100 * (found <= bits).mean():.0f}" for bits in BITS]
        rows.append([change, *cells])
    return table(["change", *(f"{dataset}, {bits} bits" for dataset in datasets for bits in BITS)], rows)


def attack_table(records: Sequence[dict[str, Any]]) -> str:
    """Success of the attacks, by the rule of the service."""
    rows = []
    for record in records:
        if record["what"] == "attack":
            found, rule = record["found"], record["allowed"]
            areas = [attack["success"] for attack in found["membership"][:2]]
            shown = [f"{one['auc']:.2f} ({one['auc_low']:.2f} to {one['auc_high']:.2f})" for one in areas]
            name = "all are answered" if rule is None else f"{rule} near-copies are allowed"
            rows.append(
                [
                    record["encoder"],
                    name,
                    *shown,
                    f"{found['queries']:,}",
                    f"{found['refused']:,}",
                    f"{record['paid']:,}",
                ]
            )
    return table(["encoder", "rule", "agreement", "boundary", "queries", "refused", "paid"], rows)


def write_page(options: argparse.Namespace) -> None:
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    text = PAGE.format(
        most=f"{max(record.get('images', 0) for record in records):,}",
        copied=COPIED,
        members=EFFORT.samples,
        honest=honest_table(records),
        copies=copies_table(records),
        attacks=attack_table(records),
    )
    write_text_atomically(RECORDS.with_suffix(".md"), text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, work in (("hashes", measure_hashes), ("attack", measure_attack)):
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
        command.set_defaults(run=work)
    commands.add_parser("page").set_defaults(run=write_page)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
