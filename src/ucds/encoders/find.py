"""Finds encoders that are ONNX graphs: in the package, in a file, and on a model hub."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ucds.choices import IMAGENET_MEAN, IMAGENET_STD, LARGEST_INPUT, Pooling
from ucds.encoders.graphs import GraphEncoder, check_graph, fixed_batch, open_session, pool, run_output
from ucds.encoders.hub import PREFIX, Repository, fetch_repository, open_folder
from ucds.encoders.onnx_files import GraphFacts
from ucds.encoders.preprocessor import PREPROCESSOR, Preparation, read_preparation
from ucds.encoders.spec import EDGES, PHOTOGRAPHS, EncoderSpec
from ucds.errors import DamagedFileError, InputError, brief, one_line, printable
from ucds.files import digest_of, read_object
from ucds.received import open_received

_PACKAGED = {
    PHOTOGRAPHS: EncoderSpec(PHOTOGRAPHS, 1280, 224, IMAGENET_MEAN, IMAGENET_STD),
    EDGES: EncoderSpec(EDGES, 128, 32, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
}
_CELLS = 4  # on each side of an image, of which the features of edges are made
_LARGEST_FILE = 2**31 - 1  # bytes that protobuf can read
_POOLED = ("image_embeds", "pooler_output", "last_hidden_state")  # usual names of outputs, the best first
_WITH_CLASS_TOKEN = frozenset(
    {"beit", "clip", "clip_vision_model", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit"}
    | {"vit", "vit_mae", "vit_msn"}
)
"""Types of networks whose first token stands for the image."""


def find_graph(
    choice: str | None,
    *,
    image_size: int | None = None,
    output: str | None = None,
    pooling: Pooling | None = None,
) -> GraphEncoder | None:
    """Find the encoder that a user chose; ``None`` if it is a network that is built by its name.

    A choice is ``None`` for the encoder in the package, its name or that of :data:`EDGES`; ``FILE.onnx``;
    ``hf:OWNER/NAME``; or a folder with the files of such a repository. The other arguments are those of
    :class:`ucds.training.options.EncoderOptions`.
    """
    choice = choice or PHOTOGRAPHS
    if choice in _PACKAGED:
        if output or pooling:
            raise InputError(f"`output` and `pooling` are for ONNX files, not for {_PACKAGED[choice].called}")
        return _open_packaged(choice, image_size)
    chosen = partial(_open_graph, image_size=image_size, output=output, pooling=pooling)
    if choice.startswith(PREFIX):
        return chosen(choice, fetch_repository(choice))
    if Path(choice, PREPROCESSOR).is_file() or (choice.startswith((".", "/")) and Path(choice).is_dir()):
        return chosen(Path(choice).resolve().name, open_folder(Path(choice)))
    if choice.lower().endswith(".onnx"):
        return chosen(Path(choice).name, Path(choice))
    return None


def describe_choice(encoder: GraphEncoder) -> str:
    """Say in one line how images are prepared for an encoder, and which output gives the features."""
    spec = encoder.spec
    numbers = [" ".join(f"{value:.3g}" for value in values or ()) for values in (spec.mean, spec.std)]
    pooled = {"class": ", the first token", "mean": ", the mean of all tokens", None: ""}[spec.pooling]
    return (
        f"encoder {encoder.weights}: images resized to {spec.stored_size} pixels and cropped to "
        f"{spec.input_size}, mean {numbers[0]}, standard deviation {numbers[1]}; {spec.width} features: "
        f"output {spec.output!r}{pooled}"
    )


def _open_packaged(name: str, image_size: int | None) -> GraphEncoder:
    spec, file = _PACKAGED[name], f"{name.rpartition('/')[2]}.onnx"
    size = image_size or spec.input_size
    if name == EDGES and size and size % _CELLS:
        raise InputError(f"{name} takes images of a multiple of {_CELLS} pixels, not {size}")
    content = (files("ucds.encoders") / "packaged" / file).read_bytes()
    spec = EncoderSpec(name, spec.width, size, spec.mean, spec.std)
    # Nothing was learnt for the filters. Their records are told by this, whatever computes them.
    learnt = f"package: {file} (sha256 {digest_of(content)[:12]})"
    return GraphEncoder(content, spec, "none (fixed filters)" if name == EDGES else learnt)


def _open_graph(
    name: str,
    place: Path | Repository,
    *,
    image_size: int | None,
    output: str | None,
    pooling: Pooling | None,
) -> GraphEncoder:
    """Open an ONNX file, alone or in a repository, and run it to find what it returns."""
    path = place if isinstance(place, Path) else place.graph
    content = _read(path)
    facts = check_graph(content, name)
    repository = place if isinstance(place, Repository) else None
    said = read_preparation(repository.preprocessor) if repository else None
    prepared = _prepare(name, facts, image_size, said)
    chosen = output or _choose_output(name, facts, by_name=repository is not None)
    if chosen not in (one.name for one in facts.outputs):
        raise InputError(f"{name} has no output {brief(chosen)}, but {_names(facts)}: choose by `output`")
    returned = _try(content, name, prepared.crop, chosen)
    if pooling is None and returned.ndim == 3 and repository and _type_of(repository) in _WITH_CLASS_TOKEN:
        pooling = "class"
    width = _width(name, returned, chosen, pooling)
    crop, mean, std, resize = prepared.crop, prepared.mean, prepared.std, prepared.resize
    spec = EncoderSpec(name, width, crop, mean, std, resize=resize, output=chosen, pooling=pooling)
    origin = f"file: {path.name}"
    if repository is not None and repository.revision:
        origin = f"hub: {name.removeprefix(PREFIX).partition('@')[0]}@{repository.revision}"
    return GraphEncoder(content, spec, f"{origin} (sha256 {digest_of(content)[:12]})")


def _read(path: Path) -> bytes:
    """Read an ONNX file, unless it exceeds the largest possible size."""
    try:
        with open_received(path, follow=True) as file:
            if path.stat().st_size > _LARGEST_FILE:
                raise InputError(
                    f"{path} is larger than an ONNX file can be: save it with its weights inside"
                )
            return file.read()
    except (OSError, RuntimeError, DamagedFileError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise InputError(f"{path} cannot be read as an ONNX file: {reason}") from None


def _prepare(
    name: str, facts: GraphFacts, image_size: int | None, prepared: Preparation | None
) -> Preparation:
    """Determine the size of images from the graph, the repository or the user."""
    height, width = facts.image.shape[2:] if facts.image.shape else (None, None)
    fixed = height or width
    said = prepared.crop if prepared else None
    for size, whose in ((image_size, "`image_size`"), (said, PREPROCESSOR)):
        if fixed and size and size != fixed:
            raise InputError(f"{name} takes images of {fixed} pixels, but {whose} says {size}")
    prepared = prepared or Preparation(256, 224, IMAGENET_MEAN, IMAGENET_STD)
    size = image_size or fixed or prepared.crop
    if size > LARGEST_INPUT:
        raise InputError(f"{name} takes images of {size} pixels, but ucds allows at most {LARGEST_INPUT}")
    return prepared.at(size)


def _choose_output(name: str, facts: GraphFacts, *, by_name: bool) -> str:
    """Return the only output, or the best of the usual names in a repository."""
    names = [one.name for one in facts.outputs]
    if len(names) > 1 and by_name:
        names = [known for known in _POOLED if known in names][:1] or names
    if len(names) != 1:
        raise InputError(f"{name} has several outputs ({_names(facts)}): choose one with `output`")
    return names[0]


def _names(facts: GraphFacts) -> str:
    return printable(", ".join(one.name for one in facts.outputs[:8])) + ", ..." * (len(facts.outputs) > 8)


def _try(content: bytes, name: str, size: int, output: str) -> NDArray[Any]:
    """Return an output for two empty images, or for one if the graph takes one at a time."""
    session = open_session(content, name)
    batch = np.zeros((fixed_batch(session) or 2, 3, size, size), np.float32)
    return run_output(session, output, batch, name)


def _width(name: str, returned: NDArray[Any], output: str, pooling: Pooling | None) -> int:
    """Return the number of features of an output, if it has one row per image after pooling."""
    rows, shape = pool(returned, pooling), ("n", *returned.shape[1:])
    if pooling and returned.ndim == 2:
        raise InputError(f"output {output!r} of {name} is a row of features per image: leave out `pooling`")
    if rows.ndim == 2:
        return int(rows.shape[1])
    ways = " or ".join(get_args(Pooling) if returned.ndim == 3 else ("mean",))
    if returned.ndim > 4:
        raise InputError(f"output {output!r} of {name} holds no features of images: {shape}")
    raise InputError(
        f"output {output!r} of {name} is {shape}: reduce it to one row per image with `pooling={ways}`"
    )


def _type_of(repository: Repository) -> str:
    """Return the type of network that a repository names; empty if it names none."""
    with suppress(OSError, DamagedFileError):
        return str((read_object(repository.config.resolve()) or {}).get("model_type", ""))
    return ""
