"""Writes a run that follows another one: the same encoder, with other clusters, or with more samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucds.files import making, read_object, write_text_atomically, writing
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import FloatArray
from ucds.math.prototypes import solve_prototypes
from ucds.received import open_received
from ucds.target.consensus import Agreed, write_evidence
from ucds.target.predictions import ClusterNames
from ucds.target.remembered import Remembered, write_features, write_remembered
from ucds.training.model_file import load_model, save_model
from ucds.training.run_folder import EARLY_FILES, LABELS_FILE, RUN_FILE

NAMES_FILE = "names.json"
"""Name of the file of names in the folder of a reviewed or updated run."""

_MOST_FITTED = 50_000  # samples that prototypes are fitted to


def write_successor(
    run: Path,
    out: Path,
    kept: Remembered,
    features: FloatArray,
    shares: FloatArray,
    stage: str,
    *,
    names: Mapping[int, str],
    labels: ClusterLabels | None = None,
    described: Mapping[str, Any] | None = None,
    agreed: Agreed | None = None,
) -> float:
    """Write a run whose model gives clusters, all of it or nothing, and return how far the model agrees.

    Args:
        run: folder of the run before, whose encoder, bottleneck and description are taken over.
        out: folder to make.
        kept: samples and clusters that the new run remembers.
        features: ``(n, d_f)`` bottleneck features of the samples.
        shares: ``(n, K)`` shares that prototypes are fitted to; those of samples in no cluster count for
            nothing.
        stage: name of what was done, for the description of the model.
        names: names of clusters by their numbers.
        labels: provider's labels of the samples; those of the run before if ``None``.
        described: entries of the description that differ from those of the run before.
        agreed: vote about the samples; that of the run before if ``None``.
    """
    inside = np.flatnonzero(kept.own >= 0)
    rows = inside[np.linspace(0, len(inside) - 1, min(len(inside), _MOST_FITTED)).astype(np.int64)]
    start = np.zeros((features.shape[1], kept.n_clusters), np.float32)
    prototypes = solve_prototypes(features[rows], shares[rows], start)
    stored = load_model(run, role="target")
    before = read_object(run / RUN_FILE) or {}
    reviewed = [*before.get("reviewed", []), stored.fingerprint]  # models whose numbers are kept
    after = {**before, "clusters": kept.n_clusters, "reviewed": reviewed, **(described or {})}
    stored.head.prototypes = torch.nn.Parameter(torch.from_numpy(prototypes))
    stages = (*stored.card.stages, stage)
    card = replace(stored.card, name=out.name, n_clusters=kept.n_clusters, stages=stages)
    proportions = torch.from_numpy(shares[rows]).mean(0, keepdim=True)
    with making(out) as partial, writing(out):
        partial.chmod(0o700)
        for name in EARLY_FILES:  # of which the description and what is remembered are written anew below
            with suppress(FileNotFoundError), open_received(run / name) as file:
                (partial / name).write_bytes(file.read())
        write_text_atomically(partial / RUN_FILE, json.dumps(after, indent=2) + "\n")
        if agreed is not None:
            write_evidence(partial, agreed)
        write_remembered(partial, kept)
        write_features(partial, features)
        if labels is not None:
            labels.save(partial / LABELS_FILE)
        save_model(partial, replace(stored, card=card, proportions=proportions))
        if names:
            named = ClusterNames(format="ucds-names/1", model=stored.fingerprint, names=dict(names))
            write_text_atomically(partial / NAMES_FILE, named.model_dump_json(indent=1) + "\n")
    return float(((features[inside] @ prototypes).argmax(1) == kept.own[inside]).mean())
