"""A client's program: labels, a run, predictions, questions, an update."""

from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import ucds

client = ucds.LabelClient("https://labels.example.org", key="...")
labels = ucds.query("images", "labels.json", client)
assert_type(labels, ucds.ClusterLabels)

run = ucds.train_target(
    "images",
    "run",
    labels=labels,
    n_clusters="3..40",
    settings={"starts": 2},
    options=ucds.RunOptions(seed=1),
    compute=ucds.Compute("cpu", cache="folder"),
)
assert_type(run.folder, Path)

found = ucds.predict(run.folder, ["a.png", "b.png"], sort_into="sorted", min_confidence=0.5)
assert_type(found.clusters, NDArray[np.int64])
print(found, found.ids[0], found.names.get(0, "none"), found.strangers)
found.save("clusters.csv")

review = ucds.Review("run", compute=ucds.Compute(cache=None))
while (question := review.question()) is not None:
    print(question.text, question.groups)
    review.answer("one" if question.kind == "one-or-two" else "skip")
near = review.like([review.start.ids[0]])
review.move([review.start.ids[row] for row in near.rows[:3].tolist()], "new")
proposal = review.split(2, 2, take=False)
assert_type(proposal, ucds.Proposal)
print(proposal.origins, review.seen.sizes, review.finish("reviewed").path)

updated = ucds.update("reviewed", "more images", "run2")
assert_type(updated.new_clusters, tuple[int, ...])
ucds.report("run2", out="report.html")
ucds.export("run2", "model.onnx", form="onnx")
print(ucds.evaluate("run2", "images").overall.accuracy)
