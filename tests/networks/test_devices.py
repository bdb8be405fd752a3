"""What a device cannot do is said before any work: before samples are opened and folders are made."""

import copy
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ucds
from ucds import Compute, InputError, PCDSettings, RunOptions
from ucds.choices import Accelerator
from ucds.networks.devices import choose_device, describe_device

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning"),
]

HaveDevices = Callable[..., None]


@pytest.fixture
def have(monkeypatch: pytest.MonkeyPatch) -> HaveDevices:
    """Make PyTorch say that this machine has some devices."""

    def say(cuda: int = 0, mps: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        asked = torch.backends.mps.is_available
        monkeypatch.setattr(torch.backends.mps, "is_available", wraps(asked)(lambda: mps))

    return say


@pytest.mark.parametrize(
    ("cuda", "mps", "named", "chosen"),
    [
        (2, False, "auto", "cuda"),
        (2, True, "auto", "cuda"),
        (0, True, "auto", "mps"),
        (0, False, "auto", "cpu"),
        (2, True, "cpu", "cpu"),
        (1, True, "mps", "mps"),
    ],
)
def test_a_name_or_auto_chooses_a_device(
    have: HaveDevices, cuda: int, mps: bool, named: Accelerator, chosen: str
) -> None:
    have(cuda, mps)
    assert choose_device(named).type == chosen
    if chosen != "cuda":
        assert describe_device(named)["device"] == chosen


@pytest.fixture
def images(tmp_path: Path, write_images: Callable[..., list[Path]]) -> Path:
    return write_images(tmp_path / "images", [f"{i}.png" for i in range(4)])[0].parent


MIXED = Compute("mps", "bf16-mixed")


@pytest.mark.parametrize(
    ("there", "compute", "devices", "words"),
    [
        ((0, False), Compute("cpu"), 0, "must be at least 1, not 0"),
        ((0, True), Compute("cuda"), 1, 'PyTorch finds no CUDA device: use `accelerator="cpu"`'),
        ((1, False), Compute("mps"), 1, 'PyTorch finds no MPS device: use `accelerator="cpu"`'),
        ((2, False), Compute("auto"), 3, "this machine has 2 CUDA devices, but 3 are asked for"),
        ((0, True), Compute("auto"), 2, "this machine has 1 MPS device, but 2 are asked for"),
        ((0, True), MIXED, 1, "use `precision=\"32-true\"`, not 'bf16-mixed'"),
    ],
)
def test_a_training_that_the_devices_cannot_do_is_refused_before_its_samples_are_looked_for(
    have: HaveDevices, tmp_path: Path, there: tuple[int, bool], compute: Compute, devices: int, words: str
) -> None:
    have(*there)
    given: Any = {"n_clusters": 2, "settings": PCDSettings(), "compute": compute}
    for train in (ucds.train_target, ucds.train_source):
        with pytest.raises(InputError, match=re.escape(words)):
            train(tmp_path / "missing", tmp_path / "run", options=RunOptions(devices=devices), **given)
    assert not (tmp_path / "run").exists()
    if devices == 1:
        named = {"accelerator": compute.accelerator, "precision": compute.precision}
        with pytest.raises(InputError, match=re.escape(words)):
            ucds.TargetClustering(method="pcd", **named).fit(np.eye(4))


def test_a_missing_device_is_told_before_images_are_decoded(
    have: HaveDevices, tmp_path: Path, images: Path
) -> None:
    have()
    cache = tmp_path / "cache"
    own = ucds.module_encoder(nn.Flatten(), example=torch.zeros(1, 3, 8, 8), input_size=8)
    named, compute = ucds.EncoderOptions("test_resnet", "none", 32), Compute("cuda", cache=cache)
    for encoder in (own, named):
        with pytest.raises(InputError, match="PyTorch finds no CUDA device"):
            ucds.train_target(images, tmp_path / "run", n_clusters=2, encoder=encoder, compute=compute)
    assert not cache.exists()
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def fitted(blobs: Callable[..., dict[str, Any]]) -> ucds.TargetClustering:
    settings = {"starts": 1}
    return ucds.TargetClustering(4, settings=settings, random_state=0).fit(blobs({"t": 40})["t"])


@pytest.mark.parametrize(
    ("option", "value"), [("accelerator", "cuda"), ("accelerator", "mps"), ("precision", "bf16-mixed")]
)
def test_a_device_or_a_precision_that_nothing_would_use_is_refused_before_any_work(
    fitted: ucds.TargetClustering, images: Path, tmp_path: Path, option: str, value: str
) -> None:
    x, out, cache = np.eye(4, 6, dtype=np.float32), tmp_path / "out", tmp_path / "cache"
    given: dict[str, Any] = {option: value}
    compute, estimator = Compute(cache=cache, **given), copy.copy(fitted)
    estimator.save(tmp_path / "run")
    estimator.set_params(**given)
    of_mine = ucds.FunctionEncoder(lambda pixels: pixels.mean((2, 3)), input_size=8)
    works: dict[str, Callable[[], object]] = {
        "fit": lambda: estimator.fit(x),
        "estimator's predict": lambda: estimator.predict(x),
        "predict": lambda: ucds.load(tmp_path / "run", compute=compute).predict(x),
        "train": lambda: ucds.train_target(x, out, n_clusters=2, compute=compute),
        "graph": lambda: ucds.train_target(images, out, n_clusters=2, compute=compute),
        "function": lambda: ucds.train_target(images, out, n_clusters=2, encoder=of_mine, compute=compute),
        "features": lambda: ucds.features(images, out, compute=compute),
    }
    for name, work in works.items():
        with pytest.raises(InputError, match=f'^`{option}="{value}"` has no effect here: .*; leave it out$'):
            work()
        assert not out.exists(), name
    assert not cache.exists()


def test_what_only_the_training_used_is_no_mistake_in_its_answers(
    blobs: Callable[..., dict[str, Any]],
) -> None:
    x = blobs({"t": 40})["t"]
    short = PCDSettings(refinement_epochs=1, evaluations_per_stage=1)
    estimator = ucds.TargetClustering(4, settings=short, accelerator="cpu", precision="bf16-mixed")
    assert (estimator.fit(x).predict(x) == estimator.labels_).all()
