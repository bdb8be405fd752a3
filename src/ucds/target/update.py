"""Takes new samples into a finished run: its clusters keep their numbers, and new kinds get clusters.

It works from what the run remembers, so that old samples need not be there. The encoder and the bottleneck
are the run's own. The numbers of the steps are those of ``docs/updating.md``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ucds.config import ConsensusSettings
from ucds.data.content import Column, find_places, keys_of
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples, subset
from ucds.data.sources import Source, place_of, require_there
from ucds.encoders.spec import LENGTHS
from ucds.errors import InputError
from ucds.files import read_object
from ucds.gradients.runtime import Runtime
from ucds.labels.cluster_labels import ClusterLabels, marks_of
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.corrections import ASIDE
from ucds.math.growth import count_changed
from ucds.math.kmeans import draw_representatives
from ucds.target.finishing import fit, prototypes_of, write_successor
from ucds.target.growing import Growth, grow
from ucds.target.guard import KnownLabels
from ucds.target.remembered import Remembered
from ucds.target.review import Review
from ucds.training.loaded import Model, load
from ucds.training.options import Compute
from ucds.training.run_folder import LABELS_FILE, RUN_FILE, RunFolder, require_model
from ucds.training.seeds import numpy_generator

_MOST_COMPARED = 20_000  # samples that vote; of more, the others vote like the nearest of these
_FEWEST_MOVED = 3  # samples of a cluster that a proposal moves


@dataclass(frozen=True)
class UpdatedRun:
    """A run that was written from another one and new samples.

    Attributes:
        path: run folder.
        joined: number of new samples.
        forgotten: number of old samples that the run no longer remembers.
        moved: ids of old samples that changed their cluster.
        new_clusters: numbers of the clusters that are new.
        waiting: number of samples that fit no cluster, and wait for a person's word.
        doubtful: numbers of clusters that would be others if all samples were clustered anew.
        n_clusters: number of clusters that have samples.
    """

    path: Path
    joined: int
    forgotten: int
    moved: tuple[str, ...]
    new_clusters: tuple[int, ...]
    waiting: int
    doubtful: tuple[int, ...]
    n_clusters: int

    @property
    def sentences(self) -> list[str]:
        """What has changed, in five lines."""
        some = ", ".join(self.moved[:5]) + (", .." if len(self.moved) > 5 else "")
        new, doubtful = (", ".join(map(str, each)) for each in (self.new_clusters, self.doubtful))
        forgotten = f", and {self.forgotten:,} old ones were forgotten" if self.forgotten else ""
        return [
            f"{self.joined:,} new samples joined {self.n_clusters} clusters{forgotten}",
            f"{len(self.moved):,} old samples moved to another cluster" + (f": {some}" if some else ""),
            f"{len(self.new_clusters)} clusters are new" + (f": {new}" if new else ""),
            f"{self.waiting:,} samples fit no cluster, and wait as cluster -1",
            f"{len(self.doubtful)} clusters would change if all samples were clustered anew"
            + (f": {doubtful} (`ucds review {self.path}` asks you)" if doubtful else ""),
        ]


def update(
    run: str | Path,
    images: Source,
    out: str | Path,
    *,
    labels: str | Path | ClusterLabels | None = None,
    forget_missing: bool = False,
    compute: Compute | None = None,
) -> UpdatedRun:
    """Take new samples into a run, and write the result as another run; ``ucds update`` does the same.

    Clusters keep their numbers and names, and what a person has said stays in force. A call that was killed
    leaves nothing; the same call does all of it, with features that were computed from the cache.

    Args:
        run: folder of a finished target run.
        images: new samples alone, or along with old ones, which are recognised by their content; see
            :func:`ucds.data.sources.find_samples`.
        out: run folder to make.
        labels: labels of the new samples, from the same provider's model as those of the run; a file or the
            labels.
        forget_missing: whether old samples that are not among ``images`` leave the run.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the run is not finished, or ``images``, ``labels`` or ``out`` cannot be used.
        DamagedFileError: a file of the run, or of labels, cannot be read.
        NoSpaceError: the disk is full, or the folder is not writable.
    """
    run, out, compute = Path(run), Path(out), compute or Compute()
    place = place_of(images)
    RunFolder(out).require_usable(place, resume=False)
    require_model(run)
    require_there(images)
    model = load(run, role="target", compute=compute)
    described = read_object(run / RUN_FILE) or {}
    given = ClusterLabels.load(labels) if isinstance(labels, str | Path) else labels
    known = ClusterLabels.load(run / LABELS_FILE) if (run / LABELS_FILE).exists() else None
    _require_same_provider(given, known)
    before, features, names = _remembered(run, model, compute)
    data = model.open(images)
    # 1. What is known is recognised by its content.
    settings, seed = _settings_of(described), int(described.get("seed", 0))
    grown = _Grown(before, data.samples, forget_missing, settings.most_samples, seed)
    if grown.drawn:
        compute.reporter.say(grown.drawn)
    fresh = np.empty((0, features.shape[1]), np.float32)
    if len(grown.new):
        fresh = model.outputs(Dataset(subset(data.samples, grown.new), data.view)).features
    features = np.concatenate([features[grown.old], fresh])
    answers = grown.labels(known, given, data.samples)
    # 2. to 5.
    lengths, watch = model.stored.card.backbone.name == LENGTHS, Runtime(compute).watch
    known_labels = None
    if answers is not None:
        rows = answers.rows_in(grown.ids)
        known_labels = KnownLabels(answers.labels, rows, answers.n_clusters)
    found = grow(
        features,
        grown.clusters,
        grown.held,
        grown.n_clusters,
        settings,
        numpy_generator(seed, "update"),
        known_labels,
        lengths=lengths,
        watch=watch,
    )
    after = grown.remember(found)
    where = None if place is None else str(place.resolve())
    sorted_out = after.own[: len(grown.old)] != grown.clusters[: len(grown.old)]
    done = UpdatedRun(
        path=out,
        joined=len(grown.new),
        forgotten=len(before.ids) - len(grown.old),
        moved=tuple(grown.ids[i] for i in np.flatnonzero(sorted_out)),
        new_clusters=tuple(range(before.n_clusters, after.n_clusters)),
        waiting=int(after.waiting.sum()),
        doubtful=() if after.proposed is None else tuple(count_changed(after.proposed, after.own).tolist()),
        n_clusters=len(np.unique(after.own[after.own >= 0])),
    )
    entries = {
        "images": where,
        "data": data.samples.fingerprint,
        "labels": answers and answers.fingerprint,
        "update": json.loads(json.dumps(asdict(done) | {"path": out.name, "sentences": done.sentences})),
    }
    stored = fit(model.stored, after, features, after.shares(after.own, after.n_clusters))
    write_successor(
        run,
        out,
        stored,
        after,
        features,
        "update",
        names=names,
        described=entries,
        labels=answers,
        agreed=found.agreed,
    )
    return done


def _remembered(run: Path, model: Model, compute: Compute) -> tuple[Remembered, FloatArray, dict[int, str]]:
    """Return what a run remembers after all answers of its review, its features, and names of its clusters.

    The clusters of a run that nobody has reviewed are those that its model gives.
    """
    review = Review(run, compute=compute)
    state = review.reviewed
    before = replace(review.start, own=state.clusters, by_person=state.by_person, n_clusters=state.n_clusters)
    if not review.answered and review.start.by_person is None:
        before = replace(
            before, own=(state.features @ prototypes_of(model.stored)).argmax(1).astype(np.int64)
        )
    return before, state.features, dict(state.names)


def _settings_of(described: dict[str, Any]) -> ConsensusSettings:
    """Return the settings of the vote: those of the run, if it was made by consensus."""
    given = described.get("settings", {})
    if described.get("method") == "consensus":
        return ConsensusSettings.model_validate_json(json.dumps(given))
    bound = {"most_samples": given["most_samples"]} if "most_samples" in given else {}
    return ConsensusSettings(transfer="own", **bound)


def _require_same_provider(given: ClusterLabels | None, known: ClusterLabels | None) -> None:
    if given is None:
        return
    if known is None:
        raise InputError("the run was trained without labels: leave out --labels, or train again with them")
    if (given.provider, given.n_clusters) != (known.provider, known.n_clusters):
        raise InputError(
            f"the labels are those of {given.provider!r} ({given.n_clusters} clusters), and the run has "
            f"labels of {known.provider!r} ({known.n_clusters}): ask the same model"
        )


class _Grown:
    """Old samples of a run that stay, and new ones behind them.

    Attributes:
        old: positions of the old samples that stay, among those that the run remembers.
        new: positions of the new ones among the samples given.
        ids: ids of all. An old one that is among the samples given has the id that it has there.
        keys: content keys of all.
        clusters: ``(n,)`` clusters, -1 for those that have none yet.
        held: ``(n,)`` whether a person has said where a sample belongs.
        n_clusters: number of clusters of the run, K.
        drawn: sentence that says that not all new samples were taken; empty if all were.
    """

    def __init__(self, before: Remembered, samples: Samples, forget: bool, most: int, seed: int) -> None:
        old_keys, keys = keys_of(before.keys).array, keys_of(samples.keys).array
        here, there = np.isin(old_keys, keys), np.isin(keys, old_keys)
        self.old = np.flatnonzero(here) if forget else np.arange(len(old_keys))
        if not len(self.old):
            raise InputError("none of the images of the run is here: --forget-missing would forget them all")
        fresh = np.flatnonzero(~there)
        drawn = draw_representatives(len(fresh), numpy_generator(seed, "update-draw"), most)
        self.new, self.drawn = fresh[drawn], ""
        if len(drawn) < len(fresh):
            self.drawn = (
                f"{len(drawn):,} of {len(fresh):,} new samples, drawn at random (setting most_samples), "
                "join; the model gives the others their clusters"
            )
        self.before = before
        self.ids = self._name(samples)
        self.keys = Column[bytes](np.concatenate([old_keys[self.old], keys[self.new]]))
        self.clusters = np.concatenate([before.own[self.old], np.full(len(self.new), ASIDE)])
        by_person = np.zeros(len(old_keys), bool) if before.by_person is None else before.by_person
        self.held = np.concatenate([by_person[self.old], np.zeros(len(self.new), bool)])
        self.n_clusters = before.n_clusters

    def _name(self, samples: Samples) -> tuple[str, ...]:
        """Name the samples by the ids of those given; an old one that is gone gives way to them."""
        places = _places_of_each(self.before.keys, samples.keys)[self.old]
        taken = {samples.ids[i] for i in (*places[places >= 0].tolist(), *self.new.tolist())}
        ids = []
        for row, place in zip(self.old.tolist(), places.tolist(), strict=True):
            name = samples.ids[place] if place >= 0 else self.before.ids[row]
            while place < 0 and name in taken:
                name += " (earlier)"
            taken.add(name)
            ids.append(name)
        return (*ids, *(samples.ids[i] for i in self.new.tolist()))

    def remember(self, found: Growth) -> Remembered:
        """Return what the new run remembers."""
        agreed = found.agreed
        return Remembered(
            self.ids,
            np.array(agreed.own.partitions),
            found.clusters,
            found.n_clusters,
            self.keys,
            None if agreed.averaged is None else agreed.averaged.toarray(),
            self.held,
            found.proposed if (found.proposed != found.clusters).any() else None,
        )

    def labels(
        self, known: ClusterLabels | None, given: ClusterLabels | None, samples: Samples
    ) -> ClusterLabels | None:
        """Gather the labels of old and new samples, in their order."""
        if known is None:
            return None
        values = np.full(len(self.ids), -1)
        places = find_places([self.before.ids[row] for row in self.old.tolist()], known.ids)
        values[: len(places)] = np.where(places < 0, -1, known.labels[places])
        if given is not None:
            aligned = given.align_with(samples)
            places = find_places([samples.ids[i] for i in self.new.tolist()], aligned.ids)
            values[len(self.old) :] = np.where(places < 0, -1, aligned.labels[places])
        rows = np.flatnonzero(values >= 0)
        if not len(rows):
            return None
        return ClusterLabels(
            [self.ids[i] for i in rows.tolist()],
            values[rows],
            known.n_clusters,
            known.provider,
            marks_of(self.keys.take(rows)),
            known.columns,
        )


def _places_of_each(wanted: Sequence[bytes], keys: Sequence[bytes]) -> IntArray:
    """Return where each wanted key lies, -1 if nowhere; copies find different places, as far as there are."""
    both = np.concatenate([keys_of(wanted).array, keys_of(keys).array])
    _, number = np.unique(both, return_inverse=True)
    pairs = []
    for some in np.split(number, [len(wanted)]):
        order = np.argsort(some, kind="stable")
        first = np.searchsorted(some[order], some[order])
        rank = np.empty(len(some), np.int64)
        rank[order] = np.arange(len(some)) - first
        pairs.append(some * len(both) + rank)
    order = np.argsort(pairs[1])
    places = np.searchsorted(pairs[1], pairs[0], sorter=order)
    found = order[np.minimum(places, len(order) - 1)]
    return np.where(pairs[1][found] == pairs[0], found, -1)
