"""What ten answers to the questions of a report gain, on data in class folders that answer them.

    python benchmarks/corrections.py OFFICE31 WEIGHTS [--domains amazon,dslr,webcam] [--seeds 5]

Rows of ``corrections.md`` that are not computed again stay, so that domains can be run one by one.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from ucds.data.ground_truth import read_ground_truth
from ucds.experiments.corrections import Trial, try_answers
from ucds.files import append_line
from ucds.training.features import frozen_features
from ucds.training.inputs import CacheOptions, EncoderOptions, open_for_training
from ucds.training.progress import Quiet
from ucds.training.runtime import Runtime

RECORD = Path(__file__).with_suffix(".md")
RUNS = Path(__file__).with_suffix(".jsonl")


@dataclass(frozen=True)
class Run(Trial):
    """A trial with what it was made of."""

    domain: str
    seed: int


def main() -> None:
    """Try the answers on each domain with each seed, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--backbone", default="mobilenetv2_100")
    parser.add_argument("--domains", default="dslr,webcam,amazon")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    known = {(run.domain, run.seed) for run in read_runs()}
    for domain in options.domains.split(","):
        vectors, classes = read_features(options, domain)
        for seed in range(options.seeds):
            if (domain, seed) in known:
                continue
            trial = try_answers(vectors, classes, int(classes.max()) + 1, seed)
            run = Run(**asdict(trial), domain=domain, seed=seed)
            append_line(RUNS, json.dumps(asdict(run)))
            print(domain, seed, f"{run.gain:+.2f}", flush=True)
    RECORD.write_text(describe(read_runs()))
    print(RECORD.read_text())


def read_features(options: argparse.Namespace, domain: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the frozen features ``(n, d)`` of a domain, and the class of each sample."""
    encoder, cache = EncoderOptions(options.backbone, str(options.weights)), CacheOptions(options.cache)
    inputs = open_for_training(options.data / domain, "target", encoder, cache, Quiet())
    runtime = Runtime(accelerator="cpu")
    found = frozen_features(inputs.backbone, inputs.data, runtime, cache.directory, batch_size=64)
    truth = read_ground_truth(inputs.data.samples)
    assert truth is not None
    return found.samples.read(np.arange(len(found.samples))).numpy(), truth.classes


def read_runs() -> list[Run]:
    """Read the runs that are recorded."""
    lines = RUNS.read_text().splitlines() if RUNS.exists() else []
    return [Run(**json.loads(line)) for line in lines]


def describe(runs: list[Run]) -> str:
    """Write the record as Markdown."""
    lines = [
        "# Ten answers to the questions of a report",
        "",
        "Office-31, frozen features of a pre-trained MobileNetV2, K = 31, no provider, method `consensus`.",
        "The classes answer the ten questions; a second model is trained with the answers. Accuracy in",
        "percent, gains in points. Written by `benchmarks/corrections.py`; `corrections.jsonl` has the runs.",
        "",
        "| domain | seeds | before | after | mean gain | least gain | answers: same | not the same |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for domain in dict.fromkeys(run.domain for run in runs):
        own = [run for run in runs if run.domain == domain]
        before, after = mean(100 * run.before for run in own), mean(100 * run.after for run in own)
        same, different = mean(run.same for run in own), mean(run.different for run in own)
        lines.append(
            f"| {domain} | {len(own)} | {before:.1f} | {after:.1f} | {after - before:+.1f} | "
            f"{min(run.gain for run in own):+.1f} | {same:.1f} | {different:.1f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
