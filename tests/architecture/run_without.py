"""Runs everything but learning by gradients; who starts it hides the packages that it does without.

The arguments are an empty folder and, for the demo alone, its name. The tests of each room check what a step
prints and writes; here it must run to its end.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import closing
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
from PIL import Image

import ucds
from ucds.errors import InputError

CPU = ("--accelerator", "cpu")
QUICK = (*CPU, "--set", "starts=1")


def call(*arguments: object) -> None:
    """Run a command in this process."""
    from ucds.cli import main

    sys.argv = ["ucds", *map(str, arguments)]
    status = 0
    try:
        main()
    except SystemExit as end:
        status = int(end.code or 0)
    assert not status, f"{arguments[0]} ended with status {status}"


def make_inputs() -> None:
    """Write embeddings of two domains and a target, and pictures of the same kinds of things."""
    rng, centres = np.random.default_rng(0), 3 * np.random.default_rng(1).normal(size=(4, 12))
    kinds = rng.integers(0, 4, 200)
    vectors = (centres[kinds] + rng.normal(size=(200, 12))).astype(np.float32)
    np.savez("source.npz", a=vectors[:60], b=vectors[60:120])
    np.save("others.npy", vectors[100:140] + np.float32(0.01))
    np.save("target.npy", vectors[120:])
    for domain in ("a", "b", "c"):
        Path("photos", domain).mkdir(parents=True)
        for i in range(16):
            pixels = rng.integers(0, 60, (40, 40, 3)) + 180 * np.eye(3)[i % 3]
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(f"photos/{domain}/{i}.png")


def of_vectors() -> None:
    """Go both sides' way with embeddings, by commands."""
    call("train-source", "source.npz", "--clusters", 4, "--out", "provider", *QUICK)
    call("label", "provider", "target.npy", "--out", "labels.json", *CPU)
    ask("provider", "target.npy")
    call("train-target", "target.npy", "--labels", "labels.json", "--out", "own", *QUICK)
    call("train-target", "target.npy", "--clusters", "3..5", "--out", "alone", *QUICK)
    call("predict", "own", "target.npy", "--out", "clusters.csv", *CPU)
    call("report", "own", *CPU)
    review = ucds.Review("own")
    review.join([0, 1])
    review.finish("reviewed")
    call("predict", "reviewed", "target.npy", "--out", "reviewed.csv", *CPU)
    call(
        "audit", "provider", "--members", "source.npz", "--others", "others.npy", "--out", "a.html", "--quick"
    )
    call("export", "own", "--format", "hub")


def ask(run: str, samples: str) -> None:
    """Serve a run in a thread, and ask for labels over HTTP."""
    from ucds.serving.ledger import Ledger

    with closing(Ledger(run, create=True)) as book:
        key = book.add_key("client", 1000)
    ready, stop = Queue[str](), threading.Event()
    how = {"port": 0, "accelerator": "cpu", "ready": ready.put, "stop": stop}
    service = threading.Thread(target=ucds.serve, args=(run,), kwargs=how)
    service.start()
    os.environ["UCDS_KEY"] = key
    call("query", samples, "--url", ready.get(timeout=60), "--out", "answers.json")
    stop.set()
    service.join()
    assert (
        ucds.ClusterLabels.load("answers.json").labels == ucds.ClusterLabels.load("labels.json").labels
    ).all()


def of_images() -> None:
    """Go both sides' way with photographs and the encoder in the package, by functions and estimators."""
    ucds.train_source("photos", "p", 3, domains=["a", "b"])
    labels = ucds.label("p", "photos/c", "l.json")
    ucds.train_target("photos/c", "t", labels=labels)
    assert len(set(ucds.predict("t", "photos/c").clusters.tolist())) == 3
    ucds.report("t")
    ucds.Review("t").outlook  # noqa: B018
    source = ucds.SourceClustering(3, random_state=0).fit("photos")
    source.save("saved")
    given = ucds.TargetClustering(3).fit(np.load("target.npy"), source_labels=None)
    assert given.predict(np.load("target.npy")).shape == (80,)
    assert len(ucds.SourceClustering.load("saved").predict("photos")) == 48
    ucds.features("photos/c", "features")
    ucds.train_target("features", "of-features", n_clusters=3)


def refused() -> None:
    """Ask for what learns by gradients: one line names the command that installs it, and nothing is made."""
    for asked in ({"settings": ucds.PCDSettings()}, {"encoder": ucds.EncoderOptions("resnet18")}):
        with pytest.raises(InputError, match=r"pip install 'ucds\[torch\]'"):
            ucds.train_target("photos/c", "never", n_clusters=3, **asked)
    assert not Path("never").exists()


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    if sys.argv[2:] == ["demo"]:
        call("demo", "--out", "story")
    else:
        make_inputs()
        of_vectors()
        of_images()
        refused()
    print("all of it")
