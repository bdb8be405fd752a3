"""Tests of networks by name, on architectures small enough for a test."""

import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ucds.errors import UserError
from ucds.networks.build import build_network
from ucds.networks.encoder import NetworkEncoder
from ucds.networks.weight_files import REMEDY
from ucds.training.options import Compute, EncoderOptions

pytestmark = pytest.mark.torch

SMALL = "test_resnet"


def state_of(network: NetworkEncoder) -> dict[str, torch.Tensor]:
    """The weights in the layout of the file format."""
    return {name: weight.contiguous() for name, weight in network.module.state_dict().items()}


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty caches, and every connection through a proxy at a port where nobody listens."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setattr("urllib.request._opener", None)  # it remembers the proxies of its first use


def images(network: NetworkEncoder, n: int = 2) -> torch.Tensor:
    size = network.spec.input_size
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0))


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


FAMILIES = {
    "alexnet": 4096,
    "convnext_tiny": 768,
    "densenet121": 1024,
    "efficientnet_b0": 1280,
    "googlenet": 1024,
    "inception_v3": 2048,
    "maxvit_t": 512,
    "mnasnet0_5": 1280,
    "regnet_x_400mf": 400,
    "shufflenet_v2_x0_5": 1024,
    "swin_t": 768,
    "vgg11": 4096,
    "vit_b_32": 768,
}


@pytest.mark.parametrize(
    ("name", "width", "input_size"),
    [
        (SMALL, 96, 64),
        ("test_vit", 64, 64),
        ("torchvision/resnet18", 512, 64),
        ("torchvision/squeezenet1_1", 512, 64),
        ("torchvision/mobilenet_v2", 1280, 64),
        ("torchvision/mobilenet_v3_small", 1024, 64),
        *(pytest.param(f"torchvision/{n}", w, None, marks=pytest.mark.slow) for n, w in FAMILIES.items()),
    ],
)
def test_features_have_the_announced_width(name: str, width: int, input_size: int | None) -> None:
    network = build_network(name, weights="none", input_size=input_size)
    assert network.spec.width == width
    assert network.weights == "none (random)"
    for mode in (True, False):
        assert network.module.train(mode)(images(network)).shape == (2, width)


def test_no_classifier_is_left() -> None:
    module = build_network("torchvision/mobilenet_v2", weights="none", input_size=64).module
    assert not [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Dropout)]


def test_squeezenet_features_are_averaged_over_space() -> None:
    network = build_network("torchvision/squeezenet1_1", weights="none", input_size=64)
    network.module.eval()
    inputs = images(network)
    expected = network.module.features(inputs).mean(dim=(2, 3))
    torch.testing.assert_close(network.module(inputs), expected)


def test_spec_tells_the_inputs_the_model_expects() -> None:
    spec = build_network("test_vit", weights="none").spec
    assert (spec.input_size, spec.mean, spec.std) == (160, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    imagenet = build_network("torchvision/squeezenet1_1", weights="none").spec
    assert (imagenet.mean, imagenet.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_convolutions_are_laid_out_for_their_fast_kernels() -> None:
    built = build_network(SMALL, weights="none")
    convolutions = [module for module in built.module.modules() if isinstance(module, nn.Conv2d)]
    assert convolutions
    for weight in built.module.parameters():
        assert weight.dim() != 4 or weight.is_contiguous(memory_format=torch.channels_last)
    features = convolutions[0](torch.rand(2, 3, 32, 32))
    assert features.is_contiguous(memory_format=torch.channels_last)


def test_random_start_depends_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build_network(SMALL, weights="none", input_size=64, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert same_weights(first.module, build_network(SMALL, weights="none", input_size=64, seed=1).module)
    assert not same_weights(first.module, build_network(SMALL, weights="none", input_size=64, seed=2).module)


def test_a_local_file_wins_and_one_of_another_network_is_refused(tmp_path: Path) -> None:
    given = build_network(SMALL, weights="none", input_size=64, seed=1)
    save_file(state_of(given), tmp_path / "own.safetensors")
    loaded = build_network(SMALL, weights=tmp_path / "own.safetensors", seed=2)
    assert same_weights(given.module, loaded.module)
    assert loaded.weights.startswith("file: own.safetensors (sha256 ")
    with pytest.raises(UserError, match=r"does not fit .*'torchvision/squeezenet1_1': \d+ weights missing"):
        build_network("torchvision/squeezenet1_1", weights=tmp_path / "own.safetensors")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("squeezenet1_1", "torchvision/squeezenet1_1"),
        ("resnet-18", "resnet18"),
        ("MobileNetV2_100", "mobilenetv2_100"),
        ("torchvision/resnet181", "torchvision/resnet18"),
        ("resnet18.a9_in1k", "resnet18.a"),
        ("!", "names are timm's"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(UserError) as refusal:
        build_network(name, weights="none")
    assert suggestion in str(refusal.value)


def test_a_graph_is_no_network_that_could_be_trained() -> None:
    with pytest.raises(UserError, match="trains only a network by name, but ucds/oriented_edges is an ONNX"):
        EncoderOptions("ucds/oriented_edges", "none").network(Compute("cpu", cache=None))


def test_an_impossible_input_size_is_refused() -> None:
    with pytest.raises(UserError, match="'torchvision/vit_b_32' for inputs of 100 pixels"):
        build_network("torchvision/vit_b_32", weights="none", input_size=100)
    for size in (0, 1025):
        with pytest.raises(UserError, match=f"1 to 1024 pixels, not {size}"):
            build_network("torchvision/vit_b_32", weights="none", input_size=size)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", [SMALL, "torchvision/squeezenet1_1"])
def test_offline_is_told_at_once_and_nothing_random_is_made(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    start = time.perf_counter()
    reason = f"'{name}'.* is not in the cache, and https://.* cannot be reached"
    with pytest.raises(UserError, match=reason) as refusal:
        build_network(name)
    assert time.perf_counter() - start < 5
    assert str(refusal.value).endswith(REMEDY)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("offline")
def test_forbidden_downloads_and_weights_that_nobody_published_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError, match="timm has no pre-trained weights for 'resnetblur18'"):
        build_network("resnetblur18")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE forbids"):
        build_network(SMALL)


@pytest.mark.usefixtures("offline")
def test_cached_hub_weights_are_taken_offline(tmp_path: Path) -> None:
    given = build_network(SMALL, weights="none", input_size=64, seed=1)
    repository = tmp_path / "hub" / "models--timm--test_resnet.r160_in1k"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    state = {**state_of(given), "fc.weight": torch.zeros(1000, 96), "fc.bias": torch.zeros(1000)}
    save_file(state, snapshot / "model.safetensors")
    loaded = build_network(SMALL)
    assert loaded.weights == "hub: timm/test_resnet.r160_in1k"
    assert same_weights(given.module, loaded.module)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("name", "file", "origin"),
    [
        ("squeezenet1_1", "squeezenet1_1-b8a52dc0.pth", "torchvision SqueezeNet1_1_Weights.IMAGENET1K_V1"),
        ("resnet50_swav", "swav_800ep_pretrain.pth.tar", "https://"),
    ],
)
def test_downloaded_weights_are_taken_offline_without_their_classifier(
    name: str, file: str, origin: str, tmp_path: Path
) -> None:
    from torchvision import models

    complete = models.get_model(name.removesuffix("_swav"), weights=None)
    further = {"module.projection_head.0.weight": torch.zeros(3), "module.prototypes.weight": torch.zeros(3)}
    cache = tmp_path / "torch" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save(nn.DataParallel(complete).state_dict() | further, cache / file)
    loaded = build_network(f"torchvision/{name}", input_size=64)
    assert loaded.weights.startswith(f"hub: {origin}")
    state = complete.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in loaded.module.state_dict().items())
