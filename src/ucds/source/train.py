"""Trains the provider's model: from a folder of domains to a run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ucds.arguments import checked
from ucds.choices import Method, read_clusters
from ucds.config import MethodSettings, choose_settings
from ucds.data.sources import Source, find_samples, place_of
from ucds.encoders.encoder import Encoder
from ucds.files import digest_of
from ucds.source.fit import fit_source
from ucds.source.private import read_groups
from ucds.training.inputs import open_for_training
from ucds.training.options import Compute, EncoderOptions, RunOptions
from ucds.training.run import TrainedRun, require_able, train_run
from ucds.training.run_folder import RunFolder


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
        data: folder with one folder of images a domain, ``.npz`` with one array of embeddings a domain, table
            with a column of domains, or other samples; see :func:`ucds.data.sources.find_samples`.
        out: run folder to make.
        n_clusters: number of clusters, K; ``"auto"`` or a range such as ``"3..40"`` lets ucds choose from
            the features of the frozen encoder.
        domains: names of the domains to use; all if ``None``.
        encoder: encoder for images, of any architecture, or one of your own; the one in the package if
            ``None``.
        method: ``"consensus"``, or ``"pcd"``, the paper's method; if ``None``, that of the settings, and else
            ``"consensus"``.
        settings: :class:`ucds.PCDSettings` or :class:`ucds.ConsensusSettings`, or settings of the method by
            name; the defaults if ``None``.
        options: seed, processes and how to run otherwise; the defaults if ``None``.
        compute: device, precision, cache and reporter; the defaults if ``None``.
        groups: CSV file with the columns ``id`` and ``group``, the person of each image; with it the setting
            ``dp_epsilon`` protects persons. ``None`` protects single images.

    Raises:
        InputError: inputs, settings or the run folder cannot be used.
    """
    out, options, compute = Path(out), options or RunOptions(), compute or Compute()
    chosen = choose_settings(method, "source", settings)
    read_clusters(n_clusters, least=2)
    require_able(chosen, options)
    RunFolder(out).require_usable(place_of(data), resume=options.resume)
    found = find_samples(data, by_domain=True, domains=domains)
    people = None if groups is None else read_groups(Path(groups))
    inputs = open_for_training(found, encoder or EncoderOptions(), compute, chosen.tune)
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
