"""Rewrites the records of benchmarks that were made before settings belonged to methods.

    python tools/correct_records.py results/*/runs.jsonl

Until 2026-11-21 a record held one configuration for all methods ("config") and, for baselines, their own
settings beside it ("baseline"). Its entry "recipe" said "pcd" even where our method, then called "ucds", ran.
This script gives every record exactly the settings that its method looked at ("settings"), under the method's
present name, and spells out what the first records did not name, with the values of their time. Figures,
times, versions, revisions and the order of records are left as they are. A record in the new form is left
alone, so that the script may be run again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAMES = {"ucds": "consensus", "ucds-alone": "consensus-alone", "ucds-source": "consensus-source"}

MODEL = ("tune", "bottleneck_width", "prediction_batch_size")
TRAINING = (
    *MODEL,
    *("batch_size", "learning_rate", "new_layer_learning_rate", "momentum", "nesterov", "weight_decay"),
    *("decay_rate", "decay_power", "mixing_weight", "mixing_alpha", "evaluations_per_stage"),
)
PCD = (
    *TRAINING,
    *("transport_weight", "information_weight", "distillation_weight", "epsilon", "transport_tolerance"),
    *("transport_max_iterations", "source_proportion_momentum", "target_proportion_momentum"),
    *("label_smoothing", "ensemble_momentum", "source_epochs", "clustering_epochs", "refinement_epochs"),
    "validation_fraction",
)
CONSENSUS = (
    *TRAINING,
    *("domain_centring", "domain_transport", "proportion_relaxation", "source_starts", "spaces"),
    *("space_width", "whitening", "neighbours", "diffusion_rounds", "space_partitions", "transfer"),
    *("trusted_agreement", "least_agreement", "fitting_epochs"),
)
BASELINES = ("deepcluster", "iic", "acids")

FIRST: Mapping[str, Any] = {
    **{"subset": "full", "pooled_source": False, "start": "pre-trained", "random": False},
    **{"source_clusters": None, "image_size": None, "variant": ""},
}
"""Entries that the first records did not have, with what the runs of that time did."""


def main(paths: list[Path]) -> None:
    for path in paths:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        dataset = path.parent.name.partition("-")[0]
        corrected = [correct(record, dataset) for record in records]
        path.write_text("".join(json.dumps(record) + "\n" for record in corrected), encoding="utf-8")
        changed = sum(old != new for old, new in zip(records, corrected, strict=True))
        print(f"{path}: {changed} of {len(records)} records corrected")


def correct(record: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """Give a record its present form."""
    if "settings" in record:
        return dict(record)
    config, baseline = record["config"], record.get("baseline")
    method = NAMES.get(record["method"], record["method"])
    family = method.partition("-")[0]
    if family == "kmeans":
        settings: dict[str, Any] = {"restarts": 5}
    elif family == "consensus":
        settings = {name: config[name] for name in CONSENSUS}
    elif family in BASELINES:
        settings = {name: config[name] for name in MODEL} | baseline
    else:
        settings = {name: config[name] for name in PCD}
    values = {"dataset": "" if dataset == "digits" else dataset, **FIRST}
    values |= {"source_backbone": record["backbone"], "source_weights": record["weights"]}
    values |= {
        name: value for name, value in record.items() if name not in ("config", "config_hash", "baseline")
    }
    return values | {"method": method, "settings": settings, "settings_hash": record["config_hash"]}


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
