"""Rewrites the records of benchmarks that were made before settings belonged to methods.

    python tools/correct_records.py results/*/runs.jsonl

Until 2026-11-21 a record held one configuration for all methods ("config") and, for baselines, their own
settings beside it ("baseline"). Its entry "recipe" said "pcd" even for the consensus method, then called
"ucds". This script gives every record exactly the settings that its method looks at ("settings"), under the
method's present name, and adds the entries that the first records did not have, with the values of their
time. Figures, times, versions, revisions and the order of records stay as they are. A record in the new form
is not changed, so the script may be run again.
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
"""Entries that the first records did not have, with the values that hold for the runs of that time."""


def main(paths: list[Path]) -> None:
    """Correct record files in place; the name of a file's folder begins with the name of its data set."""
    for path in paths:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        dataset = path.parent.name.partition("-")[0]
        corrected = [correct(record, dataset) for record in records]
        changed = sum(old != new for old, new in zip(records, corrected, strict=True))
        if changed:
            path.write_text("".join(json.dumps(record) + "\n" for record in corrected), encoding="utf-8")
        print(f"{path}: {changed} of {len(records)} records corrected")


def correct(record: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """Return a record in the present form.

    Args:
        record: record of any age.
        dataset: name of the data set of a record that does not name it.
    """
    if "settings" in record:
        return dict(record)
    config = record["config"]
    method = NAMES.get(record["method"], record["method"])
    family = method.partition("-")[0]
    if family == "kmeans":
        settings: dict[str, Any] = {"restarts": 5}
    elif family == "consensus":
        settings = {name: config[name] for name in CONSENSUS}
    elif family in BASELINES:
        settings = {name: config[name] for name in MODEL} | record["baseline"]
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
