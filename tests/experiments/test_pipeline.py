"""Tests of what methods share, and of the conditions under which they are run."""

import gc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from method_kit import OPTIONS, assert_same, changed, prototypes_of, state_of
from torch import nn

from ucds.choices import GuardChoices, Tune
from ucds.config import ConsensusSettings, PCDSettings, side_of
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import IdentityEncoder
from ucds.experiments.methods import run_methods
from ucds.experiments.pipeline import Sources, Task
from ucds.networks.encoder import NetworkEncoder, module_encoder
from ucds.source.train import fit_source
from ucds.training.options import Compute
from ucds.training.progress import Quiet

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning"),
]

OTHERS: Mapping[str, Any] = {
    "distillation_weight": 0.3,
    "target_proportion_momentum": 0.5,
    "label_smoothing": 0.5,
    "ensemble_momentum": 0.1,
    "clustering_epochs": 7,
    "refinement_epochs": 7,
    "spaces": ("principal",),
    "transfer": "own",
    "guard": GuardChoices(least_trust=-0.1),
}
"""Another value for every setting of the target's side."""


@pytest.mark.parametrize("kind", [PCDSettings, ConsensusSettings])
def test_the_source_owner_does_not_look_at_the_targets_settings(task: Task, kind: type[Any]) -> None:
    of_target = {name for name in kind.model_fields if side_of(kind, name) == "target"}
    assert of_target
    assert of_target == OTHERS.keys() & kind.model_fields.keys()
    states = []
    for options in (OPTIONS, changed(**OTHERS)):
        session = options.session(options.settings_of(kind))
        states.append(vars(fit_source(session, IdentityEncoder(6), task.source, 4).head))
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])
    assert replace(OPTIONS, settings=()).settings_of(kind) == kind()


@pytest.mark.parametrize(
    ("method", "of_target", "of_source"),
    [
        ("pcd", {"ensemble_momentum": 0.1}, {"information_weight": 0.5}),
        ("consensus", {"spaces": ("principal",)}, {"whitening": 0.1}),
    ],
)
def test_a_shared_source_changes_no_result_and_is_learned_once(
    task: Task, method: str, of_target: dict[str, Any], of_source: dict[str, Any]
) -> None:
    every = [OPTIONS, changed(**of_target), changed(**of_source)]
    sources, shared = Sources(), []
    for options, learned in zip(every, (1, 1, 2), strict=True):
        shared.append(next(run_methods(task, options, [method], sources)))
        assert len(sources.learned) == learned
    for options, other in list(zip(every, shared, strict=True))[1:]:
        (one,) = run_methods(task, options, [method])
        assert_same(one, other)
    assert not np.array_equal(prototypes_of(shared[0]), prototypes_of(shared[1]))


def test_without_model_privacy_the_target_starts_from_the_source_model(task: Task) -> None:
    """When nothing moves after stage 1, the target's model is the source's."""
    still = changed(new_layer_learning_rate=1e-12)
    so, private = run_methods(task, still, ["so", "ao"])
    (public,) = run_methods(task, replace(still, start="source weights"), ["ao"])
    for name in ("prototypes", "encoder.bottleneck.linear.weight"):
        np.testing.assert_allclose(state_of(public)[name], state_of(so)[name], rtol=1e-5, atol=1e-6)
    assert not np.allclose(prototypes_of(private), prototypes_of(so), atol=1e-3)


def three_features(tune: Tune) -> NetworkEncoder:
    torch.manual_seed(0)
    return module_encoder(nn.Linear(6, 3), width=3)


def test_source_and_target_may_have_encoders_of_their_own(task: Task) -> None:
    transfer = replace(task, source_encoder=three_features)
    names = ["po-source", "po", "so", "pcd"]
    found = {outcome.method: outcome for outcome in run_methods(transfer, OPTIONS, names)}
    widths = {name: o.model.encoder.spec.width for name, o in found.items() if o.model is not None}
    assert widths == {"po-source": 3, "po": 6, "so": 3, "pcd": 6}
    alike = {outcome.method: outcome for outcome in run_methods(task, OPTIONS, ["po-source", "po", "so"])}
    assert_same(alike["po"], alike["po-source"])
    assert_same(alike["po"], found["po"])
    assert not np.array_equal(alike["so"].labels, found["so"].labels)


def test_queries_are_what_the_source_model_is_asked_about(task: Task) -> None:
    turned = VectorSamples(-task.target.samples.read(np.arange(50)))
    asked = replace(task, queries=Dataset(turned))
    direct, other = (next(run_methods(t, OPTIONS, ["so"])) for t in (task, asked))
    assert not np.array_equal(direct.labels, other.labels)
    to, same_to = (next(run_methods(t, OPTIONS, ["to"])) for t in (task, asked))
    assert_same(to, same_to)


class Killed(BaseException):
    """A run is killed."""


class Killer(Quiet):
    """Ends a run at the first step of a stage, and remembers the stages that began."""

    def __init__(self, stage: str = "") -> None:
        self.begun: list[str] = []
        self._stage = stage

    def show(self, title: str, done: int, total: int, figures: Mapping[str, float] | None = None) -> None:
        if figures is None:  # of a stage that begins
            self.begun.append(title)
        elif title == self._stage:
            raise Killed


def test_a_killed_run_continues_where_it_was_and_ends_the_same(task: Task, tmp_path: Path) -> None:
    (whole,) = run_methods(task, OPTIONS, ["pcd"])
    killer, watch = Killer("cluster-target"), Killer()
    first, second = (
        replace(OPTIONS, checkpoints=tmp_path, compute=Compute("cpu", cache=None, reporter=reporter))
        for reporter in (killer, watch)
    )
    with pytest.raises(Killed):
        list(run_methods(task, first, ["pcd"]))
    gc.collect()  # the lock of the run's folder goes with its process, which here goes on
    (resumed,) = run_methods(task, second, ["pcd"])
    assert_same(whole, resumed)
    assert watch.begun == ["cluster-target", "refine-target"]
    assert (resumed.images, resumed.parameters) == (whole.images, whole.parameters)
