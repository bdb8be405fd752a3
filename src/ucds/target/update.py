"""Takes new samples into a finished run: its clusters keep their numbers, and new kinds get clusters.

It works from what the run remembers, so that old samples need not be there. The encoder and the bottleneck
are the run's own. The numbers of the steps are those of ``docs/updating.md``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ucds.arguments import checked
from ucds.config import ConsensusSettings
from ucds.data.about import KeptAbout, choose_rows, join_about
from ucds.data.content import Column, find_places, keys_of
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples, subset
from ucds.data.sources import Source, place_of, require_there
from ucds.encoders.spec import LENGTHS
from ucds.errors import InputError
from ucds.labels.cluster_labels import ClusterLabels, marks_of
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.corrections import ASIDE
from ucds.math.kmeans import draw_representatives
from ucds.showing import shows
from ucds.target.agreement import write_evidence
from ucds.target.answers import ANSWERS_FILE
from ucds.target.finishing import fit, write_successor
from ucds.target.followed import tell_followed
from ucds.target.growing import grow
from ucds.target.guard import KnownLabels
from ucds.target.known import places_in
from ucds.target.predictions import read_names
from ucds.target.remembered import Remembered, read_remembered
from ucds.target.review import Review
from ucds.training.centring import Centring, features_of
from ucds.training.loaded import Model, load
from ucds.training.options import Compute
from ucds.training.run_folder import ABOUT_FILE, LABELS_FILE, VOTES_FILE, RunFolder, read_run, require_model
from ucds.training.seeds import numpy_generator
from ucds.training.work import Work


@shows()
@dataclass(frozen=True)
class UpdatedRun:
    """A run that was written from another one and new samples.

    Attributes:
        path: run folder.
        joined: number of new samples that joined the run.
        forgotten: number of old samples that the run no longer remembers.
        moved: ids of old samples that changed their cluster.
        new_clusters: numbers of the clusters that are new.
        waiting: number of samples that fit no cluster, and wait for a person to place them.
        doubtful: numbers of clusters that would change if all samples were clustered anew.
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
        """Five lines that tell what has changed."""
        some = f" ({', '.join(self.moved[:5])}{', ..' * (len(self.moved) > 5)})" if self.moved else ""
        new, doubtful = (", ".join(map(str, each)) for each in (self.new_clusters, self.doubtful))
        forgotten = f", and {self.forgotten:,} old ones were forgotten" if self.forgotten else ""
        return [
            f"new samples that joined: {self.joined:,}; the run has {self.n_clusters} clusters{forgotten}",
            f"old samples that moved to another cluster: {len(self.moved):,}{some}",
            f"new clusters: {new or 'none'}",
            f"samples that fit no cluster, and wait as cluster -1: {self.waiting:,}",
            f"clusters that would change if all were clustered anew: {doubtful or 'none'}"
            + (f" (`ucds review {self.path}` asks you)" if doubtful else ""),
        ]


@checked
def update(
    run: str | Path,
    images: Source,
    out: str | Path,
    *,
    labels: str | Path | ClusterLabels | None = None,
    about: str | Path | None = None,
    group: str | None = None,
    forget_missing: bool = False,
    compute: Compute | None = None,
) -> UpdatedRun:
    """Take new samples into a run, and write the result as another run; ``ucds update`` does the same.

    Clusters keep their numbers and names, and a person's decisions stay in force. A call that was killed
    leaves no run. The same call starts again, and takes features that were already computed from the cache.

    Args:
        run: folder of a finished target run.
        images: new samples alone, or along with old ones, which are recognised by their content; see
            :func:`ucds.data.sources.find_samples`.
        out: run folder to make.
        labels: label file or labels of the new samples, from the provider's model that labelled the run.
        about: table about the new samples, see :func:`ucds.data.about.find_about`; if ``None``, the columns
            that the run keeps are read from the image files.
        group: column that says which samples belong together, such as the patient; the run's if ``None``.
        forget_missing: whether old samples that are not among ``images`` leave the run.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the run is not finished, or ``images``, ``labels``, ``about`` or ``out`` cannot be used.
        DamagedFileError: a file of the run, or of labels, cannot be read.
        NoSpaceError: the disk is full, or the folder is not writable.
    """
    run, out, compute, place = Path(run), Path(out), compute or Compute(), place_of(images)
    RunFolder(out).require_free(place)
    require_model(run)
    require_there(images)
    model, described = load(run, role="target", compute=compute), read_run(run)
    known, given = _open_labels(run, labels)
    settings, seed = _settings_of(described), described.get("seed") or 0
    before, features, names = _remembered(run, model, compute)
    data = model.open(images)
    # 1. What is known is recognised by its content.
    old, new = _find_new(before, data.samples, forget_missing)
    new = _bound(new, settings, seed, compute)
    ids = _name_all(before, data.samples, old, new)
    keys = np.concatenate([keys_of(before.keys).array[old], keys_of(data.samples.keys).array[new]])
    kept = join_about(KeptAbout.load(run / ABOUT_FILE), data.samples, about, group, Column[bytes](keys))
    fresh, centring = _encode(model, data, new, Centring.load(run), kept)
    features = np.concatenate([features[old], fresh])
    clusters = np.concatenate([before.own[old], np.full(len(new), ASIDE)])
    held = np.zeros(len(ids), bool)
    held[: len(old)] = False if before.by_person is None else before.by_person[old]
    old_ids, marks = [before.ids[row] for row in old.tolist()], marks_of(Column[bytes](keys))
    answers = _join_labels(known, given, old_ids, data.samples, new, ids, marks)
    found = grow(
        features,
        clusters,
        held,
        before.n_clusters,
        settings,
        numpy_generator(seed, "update"),
        None if answers is None else KnownLabels(answers.labels, answers.rows_in(ids), answers.n_clusters),
        lengths=model.stored.card.encoder.name == LENGTHS,
        watch=Work(settings, compute).watch,
    )
    proposed = found.proposed if (found.proposed != found.clusters).any() else None
    about_each = (Column[bytes](keys), found.labels, held, proposed)
    after = Remembered(ids, found.partitions, found.clusters, found.n_clusters, *about_each)
    done = _compare(out, before, after, old, clusters)
    entries = _entries(described, place, data.samples, answers, done)
    stored = fit(model.stored, after, after.own, after.n_clusters, features)

    def write_more(folder: Path) -> None:
        write_evidence(folder, found.agreed)
        for path, more in ((LABELS_FILE, answers), (ABOUT_FILE, kept)):
            if more is not None:
                more.save(folder / path)
        if centring is not None:
            centring.save(folder)

    write_successor(
        run, out, stored, after, features, "update", names=names, described=entries, write_more=write_more
    )
    if kept is not None:
        rows = np.flatnonzero(after.own >= 0)
        tell_followed(after.own[rows], choose_rows(kept.columns, rows), kept.group, compute.reporter.say)
    return done


def _bound(new: IntArray, settings: ConsensusSettings, seed: int, compute: Compute) -> IntArray:
    """Draw the new samples that join, if there are more than ``most_samples``."""
    drawn = draw_representatives(len(new), numpy_generator(seed, "update-draw"), settings.most_samples)
    if len(drawn) < len(new):
        part = f"{len(drawn):,} of {len(new):,} new samples, drawn at random (setting most_samples), join"
        compute.reporter.say(f"{part}; the model gives the others their clusters")
    return new[drawn]


def _compare(
    out: Path, before: Remembered, after: Remembered, old: IntArray, clusters: IntArray
) -> UpdatedRun:
    """Describe what changed; old samples, at ``old`` in the earlier run, come first, with ``clusters``."""
    inside = after.own >= 0
    changes = np.zeros_like(inside) if after.proposed is None else after.proposed != after.own
    moved = np.flatnonzero(after.own[: len(old)] != clusters[: len(old)])
    return UpdatedRun(
        path=out,
        joined=len(after.ids) - len(old),
        forgotten=len(before.ids) - len(old),
        moved=tuple(after.ids[row] for row in moved),
        new_clusters=tuple(range(before.n_clusters, after.n_clusters)),
        waiting=int(after.waiting.sum()),
        doubtful=tuple(np.unique(after.own[changes & inside]).tolist()),
        n_clusters=len(np.unique(after.own[inside])),
    )


def _encode(
    model: Model, data: Dataset, new: IntArray, centring: Centring | None, kept: KeptAbout | None
) -> tuple[FloatArray, Centring | None]:
    """Compute the features ``(m, d_f)`` of new samples, and add the means of their groups."""
    if not len(new):
        return np.empty((0, model.stored.card.bottleneck_width), np.float32), centring
    data = Dataset(subset(data.samples, new), data.view)
    if centring is not None:
        texts = centring.texts_in({} if kept is None else kept.columns)[-len(new) :]  # they are last
        below = features_of(model.stored.encoder, data, model.compute)
        centring = centring.extend(texts, data.samples, below)
        data = centring.apply(texts, data.samples, below)
    return model.outputs(data).features, centring


def _remembered(
    run: Path, model: Model, compute: Compute
) -> tuple[Remembered, FloatArray, Mapping[int, str]]:
    """Return what a run remembers after all answers of its review, its features, and names of its clusters.

    The clusters of a run that nobody has reviewed are those that its model gives.
    """
    if (run / ANSWERS_FILE).exists() or not (run / VOTES_FILE).exists():
        review = Review(run, compute=compute)
        (before, names, _), features = review.now(), review.features
    else:  # a review would look for doubts, which takes memory and time
        (before, features), names = read_remembered(run), read_names(run)
    if before.by_person is None:
        before = replace(before, own=(features @ model.stored.head.prototypes).argmax(1).astype(np.int64))
    return before, features, names


def _settings_of(described: dict[str, Any]) -> ConsensusSettings:
    """Return the settings of the vote: those of the run, if it was made by consensus."""
    given = described.get("settings") or {}
    if described.get("method") == "consensus":
        return ConsensusSettings.model_validate_json(json.dumps(given))
    bound = {"most_samples": given["most_samples"]} if "most_samples" in given else {}
    return ConsensusSettings(transfer="own", **bound)


def _entries(
    described: Mapping[str, Any],
    place: Path | None,
    samples: Samples,
    answers: ClusterLabels | None,
    done: UpdatedRun,
) -> dict[str, Any]:
    """Describe the updated run where it differs from the run that is ``described``."""
    latest = place and str(place.resolve())
    return {
        "images": latest,
        "earlier": [each for each in map(str, places_in(described)) if each != latest],
        "data": samples.fingerprint,
        "labels": answers and answers.fingerprint,
        "update": {**asdict(done), "path": done.path.name, "sentences": done.sentences},
    }


def _open_labels(
    run: Path, labels: str | Path | ClusterLabels | None
) -> tuple[ClusterLabels | None, ClusterLabels | None]:
    """Return the labels that the run has, and those of new samples, which must be by the same provider."""
    known = ClusterLabels.load(run / LABELS_FILE) if (run / LABELS_FILE).exists() else None
    given = ClusterLabels.load(labels) if isinstance(labels, str | Path) else labels
    if given is None:
        return known, None
    if known is None:
        raise InputError("the run was trained without labels: leave out `labels`, or train again with labels")
    if (given.provider, given.n_clusters) != (known.provider, known.n_clusters):
        raise InputError(
            f"the labels are those of {given.provider!r} ({given.n_clusters} clusters), and the run has "
            f"labels of {known.provider!r} ({known.n_clusters}): ask the same model"
        )
    return known, given


def _find_new(before: Remembered, samples: Samples, forget: bool) -> tuple[IntArray, IntArray]:
    """Return the positions of the old samples that stay, and of the new ones among those given."""
    old_keys, keys = keys_of(before.keys).array, keys_of(samples.keys).array
    old = np.flatnonzero(np.isin(old_keys, keys)) if forget else np.arange(len(old_keys))
    if not len(old):
        raise InputError("none of the run's images was given: `forget_missing=True` would forget all of them")
    return old, np.flatnonzero(~np.isin(keys, old_keys))


def _name_all(before: Remembered, samples: Samples, old: IntArray, new: IntArray) -> tuple[str, ...]:
    """Return the ids of old samples, then of new ones; a missing old one gives up its id to a given one."""
    places, old_keys = defaultdict[bytes, list[int]](list), keys_of(before.keys)
    for place, key in enumerate(samples.keys):
        places[key].append(place)
    found = [places[key].pop(0) if places[key] else -1 for key in (old_keys[row] for row in old.tolist())]
    taken = {samples.ids[place] for place in (*found, *new.tolist()) if place >= 0}
    ids = []
    for row, place in zip(old.tolist(), found, strict=True):
        name = samples.ids[place] if place >= 0 else before.ids[row]
        while place < 0 and name in taken:
            name += " (earlier)"
        taken.add(name)
        ids.append(name)
    return (*ids, *(samples.ids[place] for place in new.tolist()))


def _join_labels(
    known: ClusterLabels | None,
    given: ClusterLabels | None,
    old_ids: list[str],
    samples: Samples,
    new: IntArray,
    ids: Sequence[str],  # of old and new samples in the new run
    marks: Column[str],  # of their contents
) -> ClusterLabels | None:
    """Join the labels of old samples, by their ids before, and of new ones; ``None`` without any."""
    if known is None:
        return None
    new_ids = [samples.ids[place] for place in new.tolist()]
    aligned, values = given and given.align_with(samples), np.full(len(ids), -1)
    for labels, names, start in ((known, old_ids, 0), (aligned, new_ids, len(old_ids))):
        if labels is not None:
            places = find_places(names, labels.ids)
            values[start : start + len(names)] = np.where(places < 0, -1, labels.labels[places])
    rows = np.flatnonzero(values >= 0)
    if not len(rows):
        return None
    of_rows = [ids[row] for row in rows.tolist()], values[rows]
    return ClusterLabels(*of_rows, known.n_clusters, known.provider, marks.take(rows), known.columns)
