"""Trains the client's model, by the method that the settings belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ucds.arguments import checked
from ucds.choices import Method, read_clusters
from ucds.config import ConsensusSettings, MethodSettings, choose_settings
from ucds.data.about import KeptAbout, choose_rows, column_of, find_about
from ucds.data.content import find_places
from ucds.data.dataset import Dataset
from ucds.data.sources import Source, find_samples, place_of
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError, warn
from ucds.files import digest_of
from ucds.labels.cluster_labels import ClusterLabels
from ucds.target.agreement import fit_target_by_consensus
from ucds.target.followed import tell_followed
from ucds.target.remembered import read_remembered
from ucds.training.centring import Centring, features_of
from ucds.training.cluster_choice import settle_clusters
from ucds.training.inputs import open_for_training
from ucds.training.options import Compute, EncoderOptions, RunOptions
from ucds.training.prepare import Training
from ucds.training.processes import is_first_process
from ucds.training.run import TrainedRun, require_able, train_run
from ucds.training.run_folder import ABOUT_FILE, LABELS_FILE, VOTES_FILE, RunFolder
from ucds.training.work import Work


@checked
def train_target(
    images: Source,
    out: str | Path,
    *,
    labels: str | Path | ClusterLabels | None = None,
    n_clusters: int | str | None = None,
    encoder: EncoderOptions | Encoder | None = None,
    method: Method | None = None,
    settings: MethodSettings | Mapping[str, Any] | None = None,
    options: RunOptions | None = None,
    about: str | Path | None = None,
    group: str | None = None,
    centre_by: str | None = None,
    compute: Compute | None = None,
) -> TrainedRun:
    """Train a model on unlabelled samples and a provider's labels; ``ucds train-target`` does the same.

    Args:
        images: samples, see :func:`ucds.data.sources.find_samples`.
        out: run folder to make.
        labels: label file or labels of a provider, see :func:`ucds.query`; ``None`` clusters the samples
            alone.
        n_clusters: number of clusters, K; ``"auto"`` or a range such as ``"3..40"`` lets ucds choose from the
            features of the frozen encoder, whatever the provider's number, which ``None`` takes.
        encoder: encoder for images, of any architecture, or one of your own; the one in the package if
            ``None``.
        method: ``"consensus"``, or ``"pcd"``, the paper's method; if ``None``, the method of the settings, or
            ``"consensus"`` without settings.
        settings: :class:`ucds.PCDSettings` or :class:`ucds.ConsensusSettings`, or settings of the method by
            name; the defaults if ``None``.
        options: seed, processes and other options of the run; the defaults if ``None``.
        about: table about the samples, see :func:`ucds.data.about.find_about`; the run says which of its
            columns the clusters follow. ``None`` leaves this to the report.
        group: column that says which samples belong together, such as the patient.
        centre_by: column whose groups are centred on their own means, such as the scanner; see
            :mod:`ucds.training.centring`. Nothing is centred if ``None``.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: inputs, labels, settings or the run folder cannot be used.
        DamagedFileError: the label file cannot be read.

    Warns:
        UcdsWarning: only some samples have a label.
    """
    if labels is None and n_clusters is None:
        raise InputError("give the `labels` of a provider, or `n_clusters` to cluster alone")
    if n_clusters is not None:
        read_clusters(n_clusters, least=2)
    out, options, compute = Path(out), options or RunOptions(), compute or Compute()
    chosen = choose_settings(method, "target", settings, labelled=labels is not None)
    require_able(chosen, n_clusters, options, compute, labelled=labels is not None)
    place = place_of(images)
    if centre_by is not None and not isinstance(chosen, ConsensusSettings):
        raise InputError("`centre_by` is for the method consensus, whose encoder stays frozen: leave it out")
    RunFolder(out).require_usable(place, resume=options.resume)
    answers = ClusterLabels.load(labels) if isinstance(labels, str | Path) else labels
    found = find_samples(images, by_domain=False)
    known, listed = {} if (about or group or centre_by) is None else find_about(found, about), found.ids
    for name in filter(None, (group, centre_by)):
        column_of(known, name)
    inputs = open_for_training(found, encoder or EncoderOptions(), compute, chosen)
    samples = inputs.data.samples
    aligned = None if answers is None else answers.align_with(samples)
    clusters = n_clusters or (0 if aligned is None else aligned.n_clusters)
    ids, keys = samples.ids, samples.keys
    if known:
        known = choose_rows(known, find_places(ids, listed))  # some files may be no images

    def train(work: Work[MethodSettings]) -> Training:
        if aligned is not None and work.first:
            (out / LABELS_FILE).unlink(missing_ok=True)  # which may be a link
            aligned.save(out / LABELS_FILE)
        if work.first:
            (out / ABOUT_FILE).unlink(missing_ok=True)
        if known and work.first:
            KeptAbout(keys, known, group).save(out / ABOUT_FILE)
        data = inputs.data  # noqa: F821  (see below)
        if centre_by is not None:
            features = features_of(inputs.encoder, data, work.compute)  # noqa: F821
            centring = Centring.fit(centre_by, known[centre_by], data.samples, features)
            work.say(centring.sentence)
            centring.save(out)
            data = centring.apply(known[centre_by], data.samples, features)
        return fit_target(work, inputs.encoder, data, clusters, aligned)  # noqa: F821

    where = None if place is None else str(place.resolve())
    identity = {"labels": aligned and aligned.fingerprint, "images": where}
    if centre_by is not None:
        identity["centre_by"] = digest_of(json.dumps([centre_by, known[centre_by]]).encode())
    run = train_run(out, "target", clusters, inputs, chosen, options, compute, train, identity=identity)
    del found, inputs, samples  # after the training, and before what the run remembers is read
    if known and is_first_process() and (out / VOTES_FILE).exists():
        remembered, _ = read_remembered(out)
        clustered = choose_rows(known, find_places(remembered.ids, ids))
        tell_followed(remembered.own, clustered, group, compute.reporter.say)
    return run


def fit_target(
    work: Work[MethodSettings],
    encoder: Encoder,  # to be trained with PCD and `tune="full"`
    data: Dataset,
    n_clusters: int | str,  # labels play no part where it is to be chosen, see `settle_clusters`
    labels: ClusterLabels | None,  # in the order of the samples, some of which may have none
) -> Training:
    """Learn a clustering model of the target's samples, by the method of the run's settings."""
    if labels is not None and len(labels.ids) < len(data.samples):
        message = f"{len(labels.ids):,} of {len(data.samples):,} samples have a label of the provider"
        warn(f"{message}; the others are clustered without labels")
    number = settle_clusters(work, encoder, data, n_clusters, finest=True)
    if number > max(1000, len(data.samples)):  # the labels may have named it
        raise InputError(f"{len(data.samples):,} samples are too few for {number:,} clusters")
    if isinstance(work.settings, ConsensusSettings):
        consensus = cast("Work[ConsensusSettings]", work)
        return fit_target_by_consensus(consensus, encoder, data, number, labels)
    from ucds.gradients.target_stages import fit_target_by_pcd  # it brings torch

    return fit_target_by_pcd(work, encoder, data, number, labels)
