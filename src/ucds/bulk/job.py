"""One piece of bulk work: samples, a step, and a folder that gets one parquet file a shard.

A shard whose file is there is finished, and is not made again: a job that was interrupted goes on when it is
started again.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ucds.bulk.engines import BulkOptions, run_tasks
from ucds.bulk.places import Place
from ucds.bulk.shard_files import ShardSummary, read_summary, shard_name, write_shard
from ucds.bulk.shards import Rows, Shard
from ucds.bulk.steps import Step
from ucds.data.tables import csv_text, load_pyarrow
from ucds.errors import DamagedFileError, InputError, UcdsWarning
from ucds.files import digest_of
from ucds.training.progress import Reporter

FORMAT = "ucds-shards/1"
JOB_FILE, SKIPPED_FILE = "job.json", "skipped.csv"

_NAMED = 20


@dataclass(frozen=True)
class BulkResult:
    """Result of bulk work.

    Attributes:
        folder: path or address of the folder of shards.
        samples: number of samples in all shards.
        skipped: number of samples that could not be used.
        shards: number of shards.
        made: number of shards that were made now; the others were finished before.
    """

    folder: str
    samples: int
    skipped: int
    shards: int
    made: int

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return asdict(self)

    def sentence(self, what: str) -> str:
        """Say in words what was done; ``what`` names the results, such as "labels"."""
        before = f", {self.shards - self.made:,} of them finished before" if self.made < self.shards else ""
        text = (
            f"{what} of {self.samples:,} samples written to {self.folder} in {self.shards:,} shards{before}"
        )
        return text + (f"; {self.skipped:,} skipped, see {SKIPPED_FILE}" if self.skipped else "")


@dataclass(frozen=True)
class Job:
    """Bulk work to do.

    Attributes:
        what: kind of the results, in one word.
        step: step to run on every shard.
        shards: samples.
        facts: values that a reader of the results needs; they are written beside them.
        identity: values that must be the same when the job goes on, and are not written, such as a digest of
            the model.
    """

    what: str
    step: Step
    shards: Sequence[Shard]
    facts: Mapping[str, Any]
    identity: Mapping[str, Any]

    def run(self, place: Place, options: BulkOptions, reporter: Reporter) -> BulkResult:
        """Do what is not done yet, and name the samples that could not be used.

        Args:
            place: folder of the results.
            options: engine, and how it works.
            reporter: receives progress messages.

        Raises:
            InputError: the folder holds something else, a sample is of a kind that the step does not take, or
                no sample can be used; or the package for parquet is not installed.
            NoSpaceError: the folder cannot be written.
            DamagedFileError: a finished shard cannot be read.

        Warns:
            UcdsWarning: samples are skipped; 20 at most are named.
        """
        load_pyarrow()  # rather missing now than after the first shard
        present = self._claim(place, options)
        done = [number for number in range(len(self.shards)) if shard_name(number) in present]
        finished = [read_summary(place, number) for number in done]
        known = set(done)
        missing = [number for number in range(len(self.shards)) if number not in known]
        made = self._make(missing, place, options, reporter)
        summaries = sorted([*finished, *made], key=lambda summary: summary.number)
        return self._conclude(place, summaries, len(made))

    def _claim(self, place: Place, options: BulkOptions) -> set[str]:
        """Write what the job is into its folder, or find that it is there already; return the files there."""
        parts = [f"{name} {value}" for name, value in sorted({**self.facts, **self.identity}.items())]
        digest = digest_of(*(text.encode() for text in [FORMAT, self.what, *parts]), *self._digests())
        card = {"format": FORMAT, "what": self.what, **self.facts}
        card |= {"samples": sum(map(len, self.shards)), "shards": len(self.shards)}
        card |= {"shard_size": options.shard_size, "digest": digest}
        present = place.names()
        if JOB_FILE in present:
            if read_job(place).get("digest") != digest:
                other = "holds the shards of another job (other samples, model or shard size)"
                raise InputError(f"{place} {other}: choose another folder")
        elif present:
            raise InputError(f"{place} is in use: choose a new folder for the shards")
        else:
            place.write(JOB_FILE, (json.dumps(card, indent=1) + "\n").encode())
        return present

    def _digests(self) -> list[bytes]:
        return [shard.digest().encode() for shard in self.shards]

    def _make(
        self, missing: Sequence[int], place: Place, options: BulkOptions, reporter: Reporter
    ) -> list[ShardSummary]:
        if not missing:
            return []
        items = (_item(number, self.shards[number]) for number in missing)
        reporter.begin(self.what, sum(len(self.shards[number]) for number in missing))
        made: list[ShardSummary] = []
        samples = 0
        for row in run_tasks(ShardTask(self.step, place), items, options):
            made.append(pickle.loads(row["summary"][0]))
            samples += len(self.shards[made[-1].number])
            reporter.advance(samples, {})
        reporter.end()
        return made

    def _conclude(self, place: Place, summaries: Sequence[ShardSummary], made: int) -> BulkResult:
        skipped = [(s.number, name, reason) for s in summaries for name, reason in s.skipped]
        samples = sum(summary.samples for summary in summaries)
        total = samples + len(skipped)
        for number, name, reason in skipped[:_NAMED]:
            warnings.warn(f"{name}: {reason}; skipped (shard {number})", UcdsWarning, stacklevel=4)
        if skipped:
            place.write(SKIPPED_FILE, csv_text(["shard", "sample", "reason"], skipped).encode())
            shards = Counter(number for number, *_ in skipped).most_common(3)
            most = ", ".join(f"{count:,} in shard {number}" for number, count in shards)
            message = (
                f"{len(skipped):,} of {total:,} samples skipped ({most}): {place}/{SKIPPED_FILE} names them"
            )
            warnings.warn(message, UcdsWarning, stacklevel=4)
        if not samples:
            raise InputError(f"none of the {total:,} samples can be used ({skipped[0][1]}: {skipped[0][2]})")
        return BulkResult(str(place), samples, len(skipped), len(summaries), made)


@dataclass(frozen=True)
class ShardTask:
    """The task that an engine runs: read a shard, work on it, and write its file.

    Attributes:
        step: step to run on the shard's rows.
        place: folder of the results.
    """

    step: Step
    place: Place

    def __call__(self, row: Rows) -> Rows:
        """Return the ``summary`` of the shard in ``row``, pickled."""
        number, shard = int(row["number"][0]), pickle.loads(row["shard"][0])
        summary = write_shard(self.place, number, self.step(shard.rows()))
        return {"summary": np.array([pickle.dumps(summary)], dtype=object)}


def _item(number: int, shard: Shard) -> Rows:
    return {"number": np.array([number]), "shard": np.array([pickle.dumps(shard)], dtype=object)}


def read_job(place: Place) -> dict[str, Any]:
    """Read what the shards in a folder are.

    Raises:
        OSError: there is no such folder on this machine.
        UnreachablePlaceError: the store cannot be read.
        DamagedFileError: the file is damaged.
    """
    try:
        card = json.loads(place.read(JOB_FILE))
    except ValueError:
        card = None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise DamagedFileError(f"{place}/{JOB_FILE} is damaged: choose another folder, and start anew")
    return card
