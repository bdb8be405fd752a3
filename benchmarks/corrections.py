"""What ten answers to the questions of a report gain, on data in class folders that answer them.

    python benchmarks/corrections.py OFFICE31 --weights FILE [--domains amazon,dslr,webcam] [--seeds 5]

Runs that are recorded in `corrections.jsonl` are left out; the page is written anew from all of them.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from statistics import mean

from real_features import add_options, read_domains
from records import Records

from ucds.experiments.corrections import Trial, try_answers


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
    records = Records(__file__, Run)
    known = {(run.domain, run.seed) for run in records.runs}
    for one in read_domains(options):
        domain = one.name.split()[-1]
        for seed in range(options.seeds):
            if (domain, seed) in known or domain not in options.domains.split(","):
                continue
            trial = try_answers(one.vectors, one.classes, int(one.classes.max()) + 1, seed)
            run = Run(**asdict(trial), domain=domain, seed=seed)
            records.add(run)
    records.write_page(describe(records.runs))


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
