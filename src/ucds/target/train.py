"""Trains the client's model: from a folder of samples and a provider's labels to a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ucds.choices import Method, read_clusters
from ucds.config import MethodSettings, choose_settings
from ucds.data.sources import Source, find_samples, place_of
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError
from ucds.labels.cluster_labels import ClusterLabels
from ucds.target.fit import fit_target
from ucds.target.review import Review
from ucds.training.inputs import open_for_training
from ucds.training.options import Compute, EncoderOptions, RunOptions
from ucds.training.prepare import Training
from ucds.training.processes import is_first_process
from ucds.training.run import TrainedRun, require_able, train_run
from ucds.training.run_folder import LABELS_FILE, VOTES_FILE, RunFolder
from ucds.training.work import Work


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
    compute: Compute | None = None,
) -> TrainedRun:
    """Train a model on unlabelled samples and a provider's labels; ``ucds train-target`` does the same.

    Args:
        images: samples, see :func:`ucds.data.sources.find_samples`.
        out: run folder to make.
        labels: label file or labels of a provider, see :func:`ucds.query`; ``None`` clusters the samples
            alone.
        n_clusters: number of clusters, K; ``"auto"`` or a range such as ``"3..40"`` to have it chosen from
            the features of the frozen encoder, whatever the provider's number; the provider's if ``None``.
        encoder: encoder for images, of any architecture, or one of your own; the one in the package if
            ``None``.
        method: ``"consensus"``, or ``"pcd"``, the paper's method; if ``None``, that of the settings, and else
            ``"consensus"``.
        settings: :class:`ucds.PCDSettings` or :class:`ucds.ConsensusSettings`, or settings of the method by
            name; the defaults if ``None``.
        options: seed, processes and how to run otherwise; the defaults if ``None``.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: inputs, labels, settings or the run folder cannot be used.
        DamagedFileError: the label file cannot be read.

    Warns:
        UcdsWarning: only some samples have a label.
    """
    if labels is None and n_clusters is None:
        raise InputError("give `labels`, those of a provider; or `n_clusters`, to cluster alone")
    if n_clusters is not None:
        read_clusters(n_clusters, least=2)
    out, options, compute = Path(out), options or RunOptions(), compute or Compute()
    chosen, encoder = choose_settings(method, "target", settings), encoder or EncoderOptions()
    require_able(chosen, options)
    place = place_of(images)
    RunFolder(out).require_usable(place, resume=options.resume)
    answers = ClusterLabels.load(labels) if isinstance(labels, str | Path) else labels
    found = find_samples(images, by_domain=False)
    inputs = open_for_training(found, encoder, compute, chosen.tune)
    samples = inputs.data.samples
    aligned = None if answers is None else answers.align_with(samples)
    clusters = n_clusters or (0 if aligned is None else aligned.n_clusters)

    def train(work: Work[MethodSettings]) -> Training:
        if aligned is not None and work.first:
            (out / LABELS_FILE).unlink(missing_ok=True)  # which may be a link
            aligned.save(out / LABELS_FILE)
        return fit_target(work, inputs.encoder, inputs.data, clusters, aligned)  # noqa: F821  (see below)

    where = None if place is None else str(place.resolve())
    identity = {"labels": aligned and aligned.fingerprint, "images": where}
    run = train_run(out, "target", clusters, inputs, chosen, options, compute, train, identity=identity)
    del found, inputs, samples  # after the training, and before the review reads what the run remembers
    if is_first_process() and (out / VOTES_FILE).exists():
        compute.reporter.say(f"{Review(out).outlook} (ucds review {out})")
    return run
