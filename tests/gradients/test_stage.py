"""Tests of a stage as a stream of steps: its length, evaluations, selection, stopping and resuming."""

import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from ucds.config import PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.errors import InputError, Interrupted, UcdsWarning
from ucds.gradients.pcd_loss import PCDLoss, mutual_information_loss
from ucds.gradients.session import Session
from ucds.gradients.stage import Stage, Step, make_sampler
from ucds.networks.encoder import identity_network
from ucds.networks.model import ClusteringModel
from ucds.training.options import Compute
from ucds.training.progress import Quiet, Reporter
from ucds.training.results import StageResult
from ucds.training.run_folder import RunFolder

SETTINGS = PCDSettings(batch_size=8, bottleneck_width=5, evaluations_per_stage=3)
N, K = 24, 3
DATA = Dataset(VectorSamples(np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32)))

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning"),
]


def network() -> ClusteringModel:
    generator = torch.Generator().manual_seed(0)
    return ClusteringModel(identity_network(4), K, bottleneck_width=5, generator=generator)


def opened(path: Path | None = None, reporter: Reporter | None = None) -> Session[PCDSettings]:
    compute = Compute("cpu", cache=None, reporter=reporter or Quiet())
    session = Session(SETTINGS, compute, folder=path and RunFolder(path))
    session.open({}, resume=path is not None and (path / "run.json").exists())
    return session


def started(session: Session[PCDSettings], model: ClusteringModel, **options: Any) -> Stage:
    return Stage(session, "stage", model, DATA, **{"epochs": 4} | options)


def train(stage: Stage, each: Callable[[Step], None] = lambda step: None) -> StageResult:
    for step in stage.steps(PCDLoss(stage.counts, K, SETTINGS)):
        each(step)
        stage.update(information=mutual_information_loss(stage.forward(step.inputs).logits))
    return stage.result()


def test_it_has_the_steps_and_evaluations_of_its_settings() -> None:
    seen: list[Step] = []
    model = network()
    result = train(started(opened(), model), seen.append)
    assert len(seen) == 4 * N // 8
    assert [step.progress for step in seen] == pytest.approx(np.arange(12) / 12)
    assert [evaluation.step for evaluation in result.evaluations] == [4, 8, 12]
    assert [i for i, step in enumerate(seen) if step.predictions is not None] == [4, 8]
    assert all(len(evaluation.labels) == N for evaluation in result.evaluations)
    assert result.proportions.shape == (1, K)
    often = Session(SETTINGS.model_copy(update={"evaluations_per_stage": 4}), Compute("cpu", cache=None))
    result = train(started(often, network(), epochs=2))
    assert [evaluation.step for evaluation in result.evaluations] == [2, 3, 5, 6]  # when a share is done


def test_the_model_ends_with_the_weights_of_the_selected_evaluation() -> None:
    """The learning rate explodes late, so that an earlier evaluation is the most informative one."""
    session, model = opened(), network()
    stage = started(session, model)
    kept: list[dict[str, torch.Tensor]] = []

    def spoil(step: Step) -> None:
        if step.predictions is not None:
            kept.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        if len(kept) == 2:
            model.prototypes.data.zero_()

    result = train(stage, spoil)
    assert result.selected == 1
    assert all(torch.equal(tensor, kept[1][name]) for name, tensor in model.state_dict().items())


def test_a_finished_stage_yields_no_steps_and_an_unfinished_one_has_no_result() -> None:
    session = opened()
    with pytest.raises(RuntimeError, match="stage stage is not finished"):
        started(session, network()).result()
    result = train(started(session, network()))
    again = started(session, network())
    assert list(again.steps(Mock())) == []
    assert again.result() is result


@pytest.mark.parametrize("moment", [1, 4, 11])
def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path, moment: int) -> None:
    whole = network()
    expected = train(started(opened(), whole))
    session, seen = opened(tmp_path), []

    def stop(step: Step) -> None:
        seen.append(step)
        session.stop_requested = len(seen) == moment

    with pytest.raises(Interrupted):
        train(started(session, network()), stop)
    session.close()
    resumed = network()
    torch.nn.init.zeros_(resumed.prototypes)  # all comes from the checkpoint
    rest: list[Step] = []
    with closing(opened(tmp_path)) as session:
        found = train(started(session, resumed), rest.append)
    assert len(rest) == 12 - moment
    assert (rest[0].predictions is not None) == (moment == 4)
    assert found.selected == expected.selected
    for one, two in zip(found.evaluations, expected.evaluations, strict=True):
        assert np.array_equal(one.labels, two.labels)
        assert one.information == two.information
    assert np.array_equal(found.proportions, expected.proportions)
    torch.testing.assert_close(dict(resumed.state_dict()), dict(whole.state_dict()), rtol=0, atol=0)


def test_vectors_are_trained_on_one_thread_from_the_first_step_to_the_last(several_threads: int) -> None:
    """Sums of several threads have other last bits, which a run that is resumed would not have."""
    numbers = []
    train(started(opened(), network()), lambda step: numbers.append(torch.get_num_threads()))
    assert numbers == [1] * 12
    assert torch.get_num_threads() == several_threads


@pytest.mark.parametrize(("seconds", "expected"), [(1e9, 3), (0.0, 12)])
def test_checkpoints_come_with_evaluations_and_after_the_time_given(
    seconds: float, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCDS_CHECKPOINT_SECONDS", str(seconds))
    moments: set[int] = set()

    def look(step: Step | None = None) -> None:
        moments.update(path.stat().st_mtime_ns for path in tmp_path.glob("checkpoint.pt"))

    with closing(opened(tmp_path)) as session:
        train(started(session, network()), look)
    look()
    assert len(moments) == expected


def test_a_collapsed_model_is_told_of() -> None:
    model = network()

    def collapse(step: Step) -> None:
        model.encoder.bottleneck.norm.bias.data[0] = 1e3
        model.prototypes.data.zero_()[0, 1] = 1.0

    with pytest.warns(UcdsWarning, match="stage stage: the clustering has collapsed: only 1 of 3"):
        train(started(opened(), model, epochs=1), collapse)


def test_numbers_that_are_not_finite_end_the_stage_in_words() -> None:
    model = network()

    def spoil(step: Step) -> None:
        model.prototypes.data.fill_(math.nan)

    with pytest.raises(InputError, match="^stage is no longer finite at step 4 .*: lower the learning rate$"):
        train(started(opened(), model), spoil)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2 samples"):
        make_sampler(VectorSamples(np.ones((1, 4), dtype=np.float32)), opened())
    assert sum(make_sampler(DATA.samples, opened()).counts) == 8
    make_sampler(VectorSamples(np.ones((2, 4), dtype=np.float32)), opened())
