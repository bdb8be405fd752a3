"""Tests of the life of a run: what it writes, how it is resumed, and how signals stop it."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from ucds.config import MethodSettings, PCDSettings, for_side
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import IdentityEncoder
from ucds.errors import DamagedFileError, InputError, Interrupted
from ucds.gradients.pcd_loss import PCDLoss
from ucds.gradients.prepare import conclude, prepare
from ucds.gradients.session import Session
from ucds.gradients.stage import Stage
from ucds.training.inputs import Inputs
from ucds.training.model_file import load_model
from ucds.training.options import Compute, RunOptions
from ucds.training.prepare import Training
from ucds.training.run import TrainedRun, open_run, train_run
from ucds.training.work import Work

pytestmark = pytest.mark.torch

SAMPLES = VectorSamples(np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32))
INPUTS = Inputs(Dataset(SAMPLES), IdentityEncoder(4))
OPTIONS = RunOptions(seed=7)
RESUMED = RunOptions(seed=7, resume=True)
SETTINGS = PCDSettings(bottleneck_width=5, batch_size=10)


def learn(work: Work[MethodSettings]) -> Training:
    session = cast("Session[PCDSettings]", work)
    learning = prepare(session, INPUTS.encoder, INPUTS.data, 3, side="source")
    stage = Stage(session, "learn", learning.trained, learning.data, epochs=2)
    for step in stage.steps(PCDLoss(stage.counts, 3, SETTINGS)):
        stage.update(fit=stage.forward(step.inputs).logits.square().mean())
    return conclude(session, learning)


def trained(out: Path, train: Any = learn, options: RunOptions = OPTIONS, **changes: Any) -> TrainedRun:
    given = {"role": "source", "clusters": 3, "settings": SETTINGS, "identity": {"labels": "abc"}} | changes
    return train_run(out, inputs=INPUTS, options=options, compute=Compute("cpu"), train=train, **given)


def unexpected(work: Work[MethodSettings]) -> Training:
    raise AssertionError("trained again")


def test_a_run_leaves_its_model_and_description(tmp_path: Path) -> None:
    run = trained(tmp_path / "clinic")
    assert (run.folder, run.role, run.n_clusters) == (tmp_path / "clinic", "source", 3)
    assert run.seconds > 0
    assert not run.resumed_finished
    card = load_model(run.folder).card
    assert (card.name, card.role, card.stages, card.domains) == ("clinic", "source", ("learn",), ("data",))
    assert (card.n_clusters, card.bottleneck_width, card.tune) == (3, 5, "head")
    described = json.loads((run.folder / "run.json").read_text())
    assert described["settings"] == for_side(SETTINGS, "source")
    assert (described["method"], described["seed"], described["labels"]) == ("pcd", 7, "abc")
    assert (described["clusters"], described["precision"]) == (3, "32-true")
    assert described["data"] == SAMPLES.fingerprint
    assert described["versions"]["torch"] == version("torch")
    assert not (run.folder / "checkpoint.pt").exists()


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    trained(tmp_path)
    again = trained(tmp_path, unexpected, RESUMED)
    assert (again.resumed_finished, again.seconds) == (True, 0.0)
    of_the_other_side = SETTINGS.model_copy(update={"label_smoothing": 0.5})
    assert trained(tmp_path, unexpected, RESUMED, settings=of_the_other_side).resumed_finished


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_with_its_work_saved(tmp_path: Path, number: signal.Signals) -> None:
    handlers = [signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM)]

    def told_to_stop(work: Work[MethodSettings]) -> Training:
        os.kill(os.getpid(), number)
        return learn(work)

    with pytest.raises(Interrupted):
        trained(tmp_path, told_to_stop)
    assert (tmp_path / "checkpoint.pt").exists()
    assert not (tmp_path / "model.safetensors").exists()
    assert [signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert not trained(tmp_path, options=RESUMED).resumed_finished
    assert (tmp_path / "model.safetensors").exists()


def test_a_second_signal_stops_it_at_once(tmp_path: Path) -> None:
    def told_twice(work: Work[MethodSettings]) -> Training:
        os.kill(os.getpid(), signal.SIGINT)
        assert work.stop_requested
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("went on")

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, told_twice)
    trained(tmp_path, options=RESUMED)  # the folder was let go


@pytest.mark.parametrize("error", [ZeroDivisionError, InputError])
def test_a_run_that_fails_before_its_first_checkpoint_leaves_no_folder(
    tmp_path: Path, error: type[Exception]
) -> None:
    def fail(work: Work[MethodSettings]) -> Training:
        cast("Session[PCDSettings]", work).write("learn", 1, "losses", {"fit": 1.0})
        for name in ("labels.json", "clusters.json", "stability.json", "transfer.json"):
            (tmp_path / "run" / name).touch()
        raise error("nobody foresaw this")

    with pytest.raises(error, match="nobody foresaw this"):
        trained(tmp_path / "run", fail)
    assert not list(tmp_path.iterdir())
    trained(tmp_path / "run")


def test_a_run_that_fails_later_keeps_its_work(tmp_path: Path) -> None:
    def fail(work: Work[MethodSettings]) -> Training:
        learn(work)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trained(tmp_path, fail)
    assert (tmp_path / "checkpoint.pt").exists()


def test_a_run_that_is_stopped_before_its_first_checkpoint_keeps_its_number_of_clusters(
    tmp_path: Path,
) -> None:
    def stop(work: Work[MethodSettings]) -> Training:
        (tmp_path / "clusters.json").touch()
        raise Interrupted

    with pytest.raises(Interrupted):
        trained(tmp_path, stop)
    assert (tmp_path / "clusters.json").exists()


def test_a_run_may_be_started_in_any_thread(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(trained, tmp_path).result()
    assert (tmp_path / "model.safetensors").exists()


def test_a_damaged_checkpoint_lets_the_folder_go(tmp_path: Path) -> None:
    with open_run(tmp_path, {}, SETTINGS, OPTIONS, Compute("cpu")):
        pass
    (tmp_path / "checkpoint.pt").write_bytes(b"junk")
    for _ in range(2):
        with (
            pytest.raises(DamagedFileError, match="is damaged"),
            open_run(tmp_path, {}, SETTINGS, RESUMED, Compute("cpu")),
        ):
            pass
