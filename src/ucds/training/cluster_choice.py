"""Chooses the number of clusters of a run from frozen features, if the user leaves it open."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from ucds.choices import ClusterRange, read_clusters
from ucds.config import Settings
from ucds.data.content import first_positions, keys_of
from ucds.data.dataset import Dataset
from ucds.encoders.encoder import Encoder
from ucds.errors import DamagedFileError, InputError, warn
from ucds.files import write_text_atomically
from ucds.math.cluster_number import FEWEST_SAMPLES, ClusterNumber, choose_cluster_number, most_clusters
from ucds.received import read_text
from ucds.training.features import frozen_features
from ucds.training.run_folder import CLUSTERS_FILE
from ucds.training.seeds import numpy_generator
from ucds.training.work import Work

_EVIDENCE = TypeAdapter(ClusterNumber)


def settle_clusters(
    work: Work[Settings], encoder: Encoder, data: Dataset, n_clusters: int | str, *, finest: bool = False
) -> int:
    """Return the number of clusters that was asked for, or choose it from the features of a frozen encoder.

    All methods get the same number: it is chosen before any training, and a provider's labels play no part in
    the choice. The run folder, if there is one, gets the evidence in ``clusters.json``; a resumed run takes
    the number from there. :func:`ucds.choices.read_clusters` says what may be asked for. If no number stands
    out, ``finest`` takes the largest number that is about as good as the best, so that a person can join
    clusters; without ``finest``, the best number is taken. A warning says so.
    """
    asked = read_clusters(n_clusters)
    if isinstance(asked, int):
        return asked
    folder = work.folder
    known = work.once(lambda: None if folder is None else read_choice(folder.path))
    if known is not None:
        return known.number
    rows = [np.flatnonzero(data.samples.domain == d) for d in range(len(data.samples.domain_names))]
    keys = keys_of(data.samples.keys)
    different = min(len(first_positions(keys.take(of_domain))) for of_domain in rows)
    high = _largest(asked, different)

    def choose() -> ClusterNumber:
        features = frozen_features(encoder, data, work.compute, work.watch).samples
        rng = numpy_generator(work.seed, "cluster-number")
        vectors = [features.read(own) for own in rows]
        lengths = features.kind == "lengths"
        found = choose_cluster_number(vectors, asked.low, high, rng, work.watch, lengths)
        if finest and not found.clear:
            found = replace(found, number=found.high)
        _report(work, found, n_clusters, finest)
        return found

    return work.once(choose).number


def read_choice(run: Path) -> ClusterNumber | None:
    """Read the evidence for the number of clusters from a run folder; ``None`` if there is none."""
    path = run / CLUSTERS_FILE
    try:
        found = _EVIDENCE.validate_json(read_text(path))
        if not len(found.candidates) == len(found.stability) == len(found.separation) > 0:
            raise ValueError
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise DamagedFileError(f"{path} is damaged: delete it, so that the number is chosen anew") from None
    return found


def _largest(asked: ClusterRange, n_samples: int) -> int:
    """Return the largest number to try; ``n_samples`` counts the different samples of the smallest domain."""
    if n_samples < FEWEST_SAMPLES:
        raise InputError(
            f"{n_samples} different samples of a domain are too few to choose a number of clusters "
            f"(at least {FEWEST_SAMPLES}): give `n_clusters` as a number"
        )
    most = most_clusters(n_samples, asked.high)
    if asked.high is not None and asked.high > most:
        raise InputError(
            f"{n_samples:,} different samples of a domain allow to try at most {most} clusters, not "
            f"{asked.high}: name a smaller range, or a number"
        )
    return asked.high or most


def _report(work: Work[Settings], found: ClusterNumber, asked: int | str, finest: bool) -> None:
    """Say which number was chosen, and write it down with the evidence."""
    tried = f"{found.candidates[0]} to {found.candidates[-1]}"
    plausible = found.plausible
    if found.clear:
        work.say(f"{found.number} clusters were chosen among {tried}; {plausible}")
    else:
        advice = "choose `n_clusters` by what you need, or try another encoder"
        if finest:
            run = "RUN" if work.folder is None else work.folder.path
            advice = f"you get {found.high}; join clusters in `ucds review {run}`, down to {found.low}"
        warn(f"no number of clusters stands out, {plausible}: {advice}")
    if work.folder is not None:
        values = {"asked": asked, **asdict(found), "clear": found.clear}
        write_text_atomically(work.folder.path / CLUSTERS_FILE, json.dumps(values, indent=2) + "\n")
