"""Tests of predicting whole sets of samples."""

import numpy as np
import pytest
import torch
from torch import nn

from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.gradients.prediction import encode, predict, threads_for
from ucds.gradients.runtime import Runtime
from ucds.networks.encoder import identity_network, module_encoder
from ucds.networks.model import ClusteringModel
from ucds.training.options import Compute

pytestmark = pytest.mark.torch


def model(n_clusters: int = 3) -> ClusteringModel:
    net = ClusteringModel(
        identity_network(4), n_clusters, bottleneck_width=5, generator=torch.Generator().manual_seed(0)
    )
    net.train()(torch.randn(30, 4, generator=torch.Generator().manual_seed(1)))
    return net


RUNTIME = Runtime(Compute("cpu", cache=None))


def data(n: int = 23) -> Dataset:
    vectors = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    return Dataset(VectorSamples(vectors))


@pytest.mark.parametrize(
    ("batch_size", "training"), [(1, True), (7, True), (22, False), (23, True), (256, True)]
)
def test_predictions_are_those_of_the_model_in_evaluation_mode(batch_size: int, training: bool) -> None:
    net = model().train(training)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    found = predict(net, data(), RUNTIME, batch_size)
    assert net.training == training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    with torch.no_grad():
        output = net.eval()(torch.from_numpy(data().samples.read(np.arange(23))))
    torch.testing.assert_close(found, output.logits.softmax(-1), rtol=0, atol=1e-6)
    torch.testing.assert_close(found.sum(-1), torch.ones(23), rtol=0, atol=1e-6)
    assert not found.requires_grad
    features = encode(net, data(), RUNTIME, batch_size)
    torch.testing.assert_close(features, output.features, rtol=0, atol=1e-6)


def test_samples_come_in_batches_of_the_size_asked_for() -> None:
    sizes: list[int] = []
    backbone = nn.Identity()
    backbone.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    predict(ClusteringModel(module_encoder(backbone, 4), 3), data(), RUNTIME, 10)
    assert sizes == [10, 10, 3]


def test_answers_are_single_precision_under_autocast() -> None:
    runtime = Runtime(Compute("cpu", "bf16-mixed", cache=None))
    found = predict(model(), data(), runtime, 8)
    exact = predict(model(), data(), RUNTIME, 8)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.sum(-1), torch.ones(23), rtol=0, atol=1e-6)
    torch.testing.assert_close(found, exact, rtol=0, atol=0.05)
    assert not torch.equal(found, exact)  # autocast was on


def test_a_prediction_inside_another_leaves_it_one_thread(several_threads: int) -> None:
    model = ClusteringModel(identity_network(3), 2, bottleneck_width=4)
    with threads_for(model):
        with threads_for(model):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == several_threads
