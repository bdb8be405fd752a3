"""What ten answers to the questions of a report gain, on data in class folders that answer them.

    python benchmarks/corrections.py OFFICE31 --weights FILE [--domains amazon,dslr,webcam] [--seeds 5]

Rows of ``corrections.md`` that are not computed again stay, so that domains can be run one by one.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from real_features import add_options, read_domains

from ucds.experiments.corrections import Trial, try_answers
from ucds.files import append_line

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
    add_options(parser)
    parser.add_argument("--domains", default="dslr,webcam,amazon")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    known = {(run.domain, run.seed) for run in read_runs()}
    for one in read_domains(options):
        domain = one.name.split()[-1]
        for seed in range(options.seeds):
            if (domain, seed) in known or domain not in options.domains.split(","):
                continue
            trial = try_answers(one.vectors, one.classes, int(one.classes.max()) + 1, seed)
            run = Run(**asdict(trial), domain=domain, seed=seed)
            append_line(RUNS, json.dumps(asdict(run)))
            print(domain, seed, f"{run.gain:+.2f}", flush=True)
    RECORD.write_text(describe(read_runs()))
    print(RECORD.read_text())


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
