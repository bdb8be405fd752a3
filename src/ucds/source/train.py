"""Trains the provider's model, by the method that the settings belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ucds.arguments import checked
from ucds.choices import Method, read_clusters
from ucds.config import ConsensusSettings, MethodSettings, choose_settings
from ucds.data.dataset import Dataset
from ucds.data.sources import Source, find_samples, place_of
from ucds.encoders.encoder import Encoder, IdentityEncoder
from ucds.encoders.spec import LENGTHS
from ucds.errors import InputError
from ucds.files import digest_of
from ucds.source.domains import fit_source_by_transport
from ucds.source.private import fit_source_privately, read_groups
from ucds.training.cluster_choice import settle_clusters
from ucds.training.inputs import open_for_training
from ucds.training.options import Compute, EncoderOptions, RunOptions
from ucds.training.prepare import Training
from ucds.training.run import TrainedRun, require_able, train_run
from ucds.training.run_folder import RunFolder
from ucds.training.work import Work


@checked
def train_source(
    data: Source,
    out: str | Path,
    n_clusters: int | str,
    *,
    domains: Sequence[str] | None = None,
    encoder: EncoderOptions | Encoder | None = None,
    method: Method | None = None,
    settings: MethodSettings | Mapping[str, Any] | None = None,
    options: RunOptions | None = None,
    compute: Compute | None = None,
    groups: str | Path | None = None,
) -> TrainedRun:
    """Learn a clustering model from several unlabelled domains; ``ucds train-source`` does the same.

    Args:
        data: folder with one folder of images per domain, ``.npz`` with one array of embeddings per domain,
            table with a column of domains, or other samples; see :func:`ucds.data.sources.find_samples`.
        out: run folder to make.
        n_clusters: number of clusters, K; ``"auto"`` or a range such as ``"3..40"`` lets ucds choose from
            the features of the frozen encoder.
        domains: names of the domains to use; all if ``None``.
        encoder: encoder for images, of any architecture, or one of your own; the one in the package if
            ``None``.
        method: ``"consensus"``, or ``"pcd"``, the paper's method; if ``None``, the method of the settings, or
            ``"consensus"`` without settings.
        settings: :class:`ucds.PCDSettings` or :class:`ucds.ConsensusSettings`, or settings of the method by
            name; the defaults if ``None``.
        options: seed, processes and other options of the run; the defaults if ``None``.
        compute: device, precision, cache and reporter; the defaults if ``None``.
        groups: CSV file with the columns ``id`` (image) and ``group`` (person). With this file, the setting
            ``dp_epsilon`` protects persons; without it, single images.

    Raises:
        InputError: inputs, settings or the run folder cannot be used.
    """
    out, options, compute = Path(out), options or RunOptions(), compute or Compute()
    chosen = choose_settings(method, "source", settings)
    read_clusters(n_clusters, least=2)
    require_able(chosen, n_clusters, options, compute)
    if groups is not None and not (isinstance(chosen, ConsensusSettings) and chosen.dp_epsilon):
        raise InputError("`groups` are for a model with differential privacy: give `dp_epsilon` as well")
    RunFolder(out).require_usable(place_of(data), resume=options.resume)
    found = find_samples(data, by_domain=True, domains=domains)
    people = None if groups is None else read_groups(Path(groups))
    inputs = open_for_training(found, encoder or EncoderOptions(), compute, chosen)
    return train_run(
        out,
        "source",
        n_clusters,
        inputs,
        chosen,
        options,
        compute,
        lambda work: fit_source(work, inputs.encoder, inputs.data, n_clusters, groups=people),
        identity={} if people is None else {"groups": digest_of(json.dumps(people, sort_keys=True).encode())},
    )


def fit_source(
    work: Work[MethodSettings],
    encoder: Encoder,
    data: Dataset,
    n_clusters: int | str,
    *,
    groups: Mapping[str, str] | None = None,
) -> Training:
    """Learn a clustering model from unlabelled source domains, by the method of the run's settings.

    The encoder stays frozen unless PCD trains it. A number of clusters may be chosen, see
    :func:`ucds.training.cluster_choice.settle_clusters`. The ``groups`` name the person of each sample by id.
    """
    settings = work.settings
    epsilon = settings.dp_epsilon if isinstance(settings, ConsensusSettings) else None
    if epsilon is not None and encoder.spec.name == LENGTHS:
        # Where the samples lie is not private.
        encoder = IdentityEncoder(encoder.spec.takes, encoder.spec.columns)
    number = settle_clusters(work, encoder, data, n_clusters)
    if isinstance(settings, ConsensusSettings):
        ours = cast("Work[ConsensusSettings]", work)
        if epsilon is not None:
            return fit_source_privately(ours, encoder, data, number, groups)
        return fit_source_by_transport(ours, encoder, data, number)
    from ucds.gradients.source_stage import fit_source_by_pcd  # it brings torch

    return fit_source_by_pcd(work, encoder, data, number)
