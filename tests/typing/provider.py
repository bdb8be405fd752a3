"""A provider's program: a model of several domains, labels in a file, a service, an audit."""

from pathlib import Path
from typing import assert_type

import ucds

run = ucds.train_source(
    Path("hospitals"),
    "provider",
    n_clusters=12,
    domains=["north", "south"],
    method="pcd",
    settings=ucds.PCDSettings(batch_size=32, tune="head"),
    encoder=ucds.EncoderOptions("resnet18", image_size=224),
    options=ucds.RunOptions(seed=1, devices=2, resume=True),
    compute=ucds.Compute(accelerator="mps", precision="32-true", cache=Path("folder")),
)
labels = ucds.label("provider", "images", "labels.json")
assert_type(labels, ucds.ClusterLabels)
ucds.ClusterLabels.load("labels.json").save(Path("again.json"))

private = ucds.ConsensusSettings(dp_epsilon=4.0)
ucds.train_source("hospitals", "private", n_clusters=12, settings=private)
try:
    ucds.audit("provider", "members", "others", "audit.html", seed=1)
    ucds.serve("provider", host="127.0.0.1", port=8000, limits=ucds.Limits(max_batch=8))
except ucds.InputError as error:
    print(error)
except (ucds.RefusedError, ucds.ServiceUnavailableError, ucds.NoSpaceError, ucds.DamagedFileError) as error:
    print(type(error).__name__, error)

written = ucds.features("images", "features", options=ucds.BulkOptions("ray", workers=4))
assert_type(written.samples, int)
