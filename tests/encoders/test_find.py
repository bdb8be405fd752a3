"""Tests of the ways to an encoder that is a graph: the package, a file, a folder, the hub's cache."""

import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graph_kit import graph_file, means, repository, transformer
from onnx import helper

import ucds.encoders
from ucds.encoders.find import describe_choice, find_graph
from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import EDGES, PHOTOGRAPHS, EncoderSpec
from ucds.errors import InputError
from ucds.files import digest_of

PACKAGED = Path(ucds.encoders.__path__[0], "packaged")
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
CLIP = {"size": {"shortest_edge": 32}, "do_center_crop": True, "crop_size": 24, **HALF}


def found(choice: object = None, **options: Any) -> GraphEncoder:
    encoder = find_graph(None if choice is None else str(choice), **options)
    assert encoder is not None
    return encoder


def saved(folder: Path, content: bytes) -> Path:
    path = folder / "own.onnx"
    path.write_bytes(content)
    return path


def test_the_encoders_of_the_package_are_those_that_their_origin_names() -> None:
    origin = tomllib.loads((PACKAGED / "origin.toml").read_text())
    files = {path.stem: path.read_bytes() for path in PACKAGED.glob("*.onnx")}
    assert {name: digest_of(content) for name, content in files.items()} == {
        name: about["sha256"] for name, about in origin.items()
    }
    assert sum(map(len, files.values())) < 9.5e6
    assert "Apache License" in (PACKAGED / "LICENSE").read_text()


def test_the_default_encoder_needs_no_network_and_takes_any_size() -> None:
    encoder = found()
    assert encoder.spec == found(PHOTOGRAPHS).spec
    assert (encoder.spec.width, encoder.spec.input_size, encoder.spec.stored_size) == (1280, 224, 256)
    assert encoder(np.zeros((1, 3, 224, 224), np.float32)).shape == (1, 1280)
    small = found(image_size=64)
    assert small.digest == encoder.digest
    assert small(np.zeros((1, 3, 64, 64), np.float32)).shape == (1, 1280)


NOISE = np.random.default_rng(0).random((6, 3, 28, 28), np.float32)


@pytest.mark.parametrize("images", [NOISE, np.zeros((2, 3, 28, 28), np.float32)], ids=["noise", "blank"])
def test_features_of_edges_are_those_of_the_formula(images: np.ndarray) -> None:
    smooth, slope = [1, 2, 1], [-1, 0, 1]
    grey = np.pad(images.astype(np.float64).mean(1), ((0, 0), (1, 1), (1, 1)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(grey, (3, 3), axis=(1, 2))
    across, down = (
        np.einsum("nhwij,ij->nhw", windows, np.outer(*pair) / 8)
        for pair in ((smooth, slope), (slope, smooth))
    )
    angles = np.arange(8)[:, None, None] * np.pi / 8
    edges = np.cos(angles) * across[:, None] + np.sin(angles) * down[:, None]
    energy = edges**2 / (np.sqrt((edges**2).sum(1, keepdims=True)) + 1e-4)
    cells = energy.reshape(-1, 8, 4, 7, 4, 7).mean((3, 5))
    length = np.sqrt((cells**2).sum(1, keepdims=True))
    wanted = cells / (length + 0.5 * length.mean((2, 3), keepdims=True) + 1e-6)
    encoder = found(EDGES, image_size=28)
    np.testing.assert_allclose(encoder(images), wanted.reshape(-1, 128), atol=1e-6)
    assert (encoder.spec.mean, encoder.spec.std) == ((0.5,) * 3, (0.25,) * 3)


def test_an_encoder_of_the_package_has_no_options_of_other_graphs() -> None:
    with pytest.raises(InputError, match="are for ONNX files"):
        found(output="features")
    with pytest.raises(InputError, match="are for ONNX files"):
        found(EDGES, pooling="mean")
    with pytest.raises(InputError, match="a multiple of 4 pixels, not 30"):
        found(EDGES, image_size=30)


@pytest.mark.parametrize("name", ["resnet18", "torchvision/resnet18", "vit_small_patch14_dinov2.lvd142m"])
def test_other_names_are_those_of_networks(name: str) -> None:
    assert find_graph(name) is None


def test_a_file_says_its_own_size_and_width(tmp_path: Path) -> None:
    path = saved(tmp_path, means(size=40))
    encoder = found(path)
    mean, std = found().spec.mean, found().spec.std
    assert encoder.spec == EncoderSpec("own.onnx", 6, 40, mean, std, resize=46, output="features")
    assert encoder.weights == f"file: own.onnx (sha256 {digest_of(path.read_bytes())[:12]})"
    assert found(path, image_size=40).spec == encoder.spec
    with pytest.raises(InputError, match="takes images of 40 pixels, but `image_size` says 64"):
        found(path, image_size=64)
    open_size = saved(tmp_path, means())
    assert (found(open_size).spec.input_size, found(open_size, image_size=64).spec.input_size) == (224, 64)
    with pytest.raises(InputError, match="allows at most 1024"):
        found(open_size, image_size=2000)


def test_several_outputs_are_refused_with_the_option_that_chooses(tmp_path: Path) -> None:
    path = saved(tmp_path, transformer("pooler_output", "last_hidden_state"))
    with pytest.raises(InputError, match=r"outputs \(pooler_output, last_hidden_state\).* `output`$"):
        found(path)
    with pytest.raises(InputError, match="no output 'features', but pooler_output, last_hidden_state"):
        found(path, output="features")
    assert found(path, output="pooler_output").spec.output == "pooler_output"
    with pytest.raises(InputError, match=r"\('n', 5, 3\): reduce it to one row .* `pooling=class or mean`"):
        found(path, output="last_hidden_state")
    assert found(path, output="last_hidden_state", pooling="class").spec.pooling == "class"
    with pytest.raises(InputError, match="leave out `pooling`"):
        found(path, output="pooler_output", pooling="mean")


def one_output(operator: str, *more: str, **attributes: Any) -> bytes:
    weights = {"axis": np.array([0, 2])}
    node = helper.make_node(operator, ["x", *more], ["y"], **attributes)
    return graph_file([node], {"y": None}, weights)  # type: ignore[dict-item]


def a_sequence() -> bytes:
    model = onnx.load_model_from_string(one_output("SplitToSequence"))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_sequence_value_info("y", onnx.TensorProto.FLOAT, None))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (one_output("Identity"), "reduce it to one row per image with `pooling=mean`"),
        (one_output("Unsqueeze", "axis"), "must return features per image"),
        (one_output("ReduceMean", keepdims=0), "must return features per image"),
        (one_output("Cast", to=7), "int64"),
        (one_output("Reshape", "axis"), "ONNX Runtime cannot compute it"),
        (a_sequence(), "must return features per image"),
    ],
)
def test_what_is_no_row_per_image_is_refused_in_one_line(content: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason) as refusal:
        found(saved(tmp_path, content))
    assert "\n" not in str(refusal.value)


def test_maps_of_features_are_averaged_over_the_image_if_asked(tmp_path: Path) -> None:
    encoder = found(saved(tmp_path, one_output("Identity")), pooling="mean")
    inputs = np.random.default_rng(0).normal(size=(2, 3, 224, 224)).astype(np.float32)
    np.testing.assert_allclose(encoder(inputs), inputs.mean((2, 3)), atol=1e-5)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_a_file_that_cannot_be_read_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "own.onnx"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(InputError, match=r"own.onnx (cannot be read as an ONNX file: |holds no )[^\n]+$"):
        found(path)


@pytest.mark.parametrize(
    ("outputs", "network", "output", "pooling"),
    [
        (["image_embeds", "last_hidden_state"], "clip_vision_model", "image_embeds", None),
        (["last_hidden_state", "pooler_output"], "siglip_vision_model", "pooler_output", None),
        (["last_hidden_state"], "dinov2", "last_hidden_state", "class"),
    ],
)
def test_a_folder_with_the_layout_of_the_hub_says_how_it_is_used(
    outputs: list[str], network: str, output: str, pooling: str | None, tmp_path: Path
) -> None:
    encoder = found(repository(tmp_path / "own", transformer(*outputs), CLIP, model_type=network))
    spec = encoder.spec
    assert (spec.name, spec.output, spec.pooling, spec.width) == ("own", output, pooling, 3)
    assert (spec.stored_size, spec.input_size, spec.mean) == (32, 24, (0.5, 0.5, 0.5))
    said = describe_choice(encoder)
    for word in (repr(output), "resized to 32 pixels and cropped to 24", "mean 0.5 0.5 0.5", "3 features"):
        assert word in said
    assert ("first token" in said) == (pooling == "class")
    larger = found(tmp_path / "own", image_size=48).spec
    assert (larger.stored_size, larger.input_size) == (64, 48)


@pytest.mark.parametrize(
    ("graph", "missing", "reason"),
    [
        (transformer("last_hidden_state"), "", "`pooling=class or mean`"),  # whose network is not known
        (means(size=40), "", "takes images of 40 pixels, but preprocessor_config.json says 24"),
        (means(), "onnx/model.onnx", "no ONNX graph"),
        (means(), "preprocessor_config.json", "how images are"),
    ],
)
def test_a_folder_that_lacks_a_file_or_says_too_little_or_something_else_is_refused(
    graph: bytes, missing: str, reason: str, tmp_path: Path
) -> None:
    folder = repository(tmp_path / "own", graph, CLIP, model_type="new")
    if missing:
        (folder / missing).unlink()
    with pytest.raises(InputError, match=reason):
        found(folder)


COMMIT, OTHER = "a" * 40, "b" * 40


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Fill a cache of the hub, which is used without a network; return what changes the hub's settings.

    Its files are links to contents, and commits are folders.
    """
    folder = tmp_path / "hub/models--owner--name"
    for commit, graph in ((COMMIT, means()), (OTHER, transformer("pooler_output"))):
        made = repository(tmp_path / commit, graph, CLIP)
        for file in [path for path in made.rglob("*") if path.is_file()]:
            blob = folder / "blobs" / digest_of(file.read_bytes())
            link = folder / "snapshots" / commit / file.relative_to(made)
            blob.parent.mkdir(parents=True, exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, blob)
            link.symlink_to(os.path.relpath(blob, link.parent))
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text(COMMIT)
    (folder / "refs/older").write_text(OTHER)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return monkeypatch


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("choice", "commit"),
    [("hf:owner/name", COMMIT), ("hf:owner/name@older", OTHER), (f"hf:owner/name@{OTHER}", OTHER)],
)
def test_a_repository_in_the_hubs_cache_needs_no_network_and_keeps_its_commit(
    choice: str, commit: str
) -> None:
    encoder = found(choice)
    assert encoder.weights.startswith(f"hub: owner/name@{commit} (sha256 ")
    assert (encoder.spec.name, encoder.spec.input_size) == (choice, 24)


MALFORMED = ["name", "owner/name/file", "../name", "", "owner/name@../../x", "owner/name@a/../b"]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "write hf:OWNER/NAME") for name in (*MALFORMED, "owner/na..me")),
        *((name, "HF_HUB_OFFLINE forbids a download; copy") for name in ("owner/other", "owner/name@new")),
    ],
)
def test_a_repository_that_is_not_in_the_cache_is_refused_in_one_line(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as refusal:
        found(f"hf:{name}")
    assert "\n" not in str(refusal.value)


def test_a_server_that_does_not_answer_is_named(hub: pytest.MonkeyPatch) -> None:
    hub.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    hub.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="^hf:owner/other is not in the cache, and .*:9 cannot be reached"):
        found("hf:owner/other")
