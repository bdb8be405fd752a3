"""Build a backbone by its name, with pre-trained weights, weights of a local file, or none on purpose."""

from __future__ import annotations

import difflib
import json
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import torch
from pydantic import TypeAdapter
from safetensors.torch import load
from torch import nn

from ucds.choices import DEFAULT_WEIGHTS, NO_WEIGHTS, require_weights
from ucds.encoders.spec import FUNCTION, IDENTITY, VECTORS, EncoderSpec
from ucds.errors import DamagedFileError, InputError, NoSpaceError, UserError, one_line
from ucds.files import digest_of, make_private, read_sealed, write_sealed
from ucds.networks import oriented_edges, timm_models, torchvision_models
from ucds.networks.spec import VECTOR_MODULES, Backbone, StateDict
from ucds.networks.weight_files import load_file

_SEAL = "ucds-encoder/1"
_LIBRARIES = ("ucds", "torch", "torchvision", "timm")
_DESCRIBED = TypeAdapter(tuple[EncoderSpec, str])  # with the origin of the weights


def build_backbone(
    name: str, *, weights: str | Path | None = DEFAULT_WEIGHTS, input_size: int | None = None, seed: int = 0
) -> Backbone:
    """Build a network that maps images to features, without its classifier.

    Args:
        name: a timm model (``"resnet18"``, ``"vit_base_patch16_224.dino"``) or a torchvision one
            (``"torchvision/squeezenet1_1"``); ``"torchvision/resnet50_swav"`` has the weights of SwAV.
        weights: ``"default"`` or ``None`` for pre-trained weights, from the cache or by download;
            ``"none"`` for a random start; else a local ``.safetensors`` file or state dict.
        input_size: side of the square crop in pixels; the model's own if ``None``.
        seed: seed of the random start. PyTorch's global generator is left as it was.

    Raises:
        InputError: the name is unknown, or the weights cannot be had or do not fit. A random start is never
            made in their place.
    """
    choice = DEFAULT_WEIGHTS if weights is None else str(weights)
    require_weights(choice)
    backbone = _create(name, pretrained=choice == DEFAULT_WEIGHTS, input_size=input_size, seed=seed)
    if choice not in (DEFAULT_WEIGHTS, NO_WEIGHTS):
        loaded = load_file(backbone.module, Path(choice), name, timm_models.adapt)
        backbone = replace(backbone, weights=loaded)
    return backbone


def rebuild_backbone(spec: EncoderSpec) -> Backbone:
    """Build the architecture that a checkpoint describes, for its own weights to be loaded into.

    Raises:
        InputError: the architecture was a module of the user's own, is unknown here, or comes out
            with another width than described.
    """
    if spec.name in VECTORS:
        return Backbone(VECTOR_MODULES[spec.name](spec.width), spec, "none (identity)")
    if spec.name == FUNCTION:
        raise InputError(
            "the backbone was a module of your own, which no name can rebuild; "
            "make it again and pass module_backbone(...)"
        )
    backbone = _create(spec.name, pretrained=False, input_size=spec.input_size, seed=0)
    if backbone.spec.width != spec.width:
        raise InputError(
            f"backbone '{spec.name}' returns {backbone.spec.width} features here, but {spec.width} where the "
            "checkpoint was made; install the version of its library that was used there"
        )
    return replace(backbone, spec=spec)


class StoredBackbone(Backbone):
    """A backbone of a file, which is built when its module is first asked for.

    The libraries of networks take two seconds to load. What needs the weights alone, such as a prediction
    from features that are in the cache, does not wait for them. Errors name the file, ``path``.

    Raises:
        InputError: the architecture is a module of the user's own. When the module is asked for: it is
            unknown here, or comes out with another width than described.
        DamagedFileError: the weights do not fit the architecture, when the module is asked for.
    """

    _state: StateDict
    _path: Path

    def __init__(self, spec: EncoderSpec, weights: str, state: StateDict, path: Path) -> None:
        if spec.name == FUNCTION:
            rebuild_backbone(spec)
        vars(self).update(spec=spec, weights=weights, _state=state, _path=path)

    @cached_property
    def module(self) -> nn.Module:
        """Network with its weights."""
        try:
            if (sketch := _without_memory(self.spec)) is not None:  # the name may be that of a giant
                sketch.load_state_dict(self._state, assign=True)
            module = rebuild_backbone(self.spec).module
            module.load_state_dict(self._state)
        except (UserError, MemoryError):
            raise
        except Exception as error:  # whatever building a network from an edited description may raise
            raise DamagedFileError(
                f"{self._path} does not fit its own description: {one_line(error)}"
            ) from None
        return module

    def state(self) -> StateDict:
        """Return the weights by name."""
        return self._state


def _without_memory(spec: EncoderSpec) -> nn.Module | None:
    """Build an architecture whose weights have shapes and no memory; ``None`` where it cannot be built so."""
    with torch.device("meta"), suppress(RuntimeError, ValueError, TypeError, NotImplementedError):
        return rebuild_backbone(spec).module
    return None


def find_backbone(name: str, weights: str, input_size: int | None, folder: Path) -> Backbone:
    """Take an encoder from the folder of a cache, or build it and keep it there for the next time.

    So the libraries of networks are loaded once for each encoder. Published weights of a name are taken to
    stay the same in one version of their library. An encoder that cannot be kept is used all the same.
    Arguments and errors are those of :func:`build_backbone`.
    """
    given = Path(weights)
    content = digest_of(given.read_bytes()) if given.is_file() else ""
    facts = [name, input_size, given.name, content, *map(version, _LIBRARIES)]
    path = folder / f"encoder-{digest_of(json.dumps(facts).encode())[:32]}.weights"
    with suppress(FileNotFoundError, DamagedFileError):
        head, _, state = read_sealed(path, _SEAL).partition(b"\n")
        return StoredBackbone(*_DESCRIBED.validate_json(head), load(state), path)
    backbone = build_backbone(name, weights=weights, input_size=input_size)
    with suppress(NoSpaceError):
        make_private(folder)
        head = _DESCRIBED.dump_json((backbone.spec, backbone.weights))
        write_sealed(path, _SEAL, head + b"\n" + backbone.saved())
    return backbone


def _create(name: str, *, pretrained: bool, input_size: int | None, seed: int) -> Backbone:
    if name in (IDENTITY, FUNCTION):
        made_by = "identity_backbone" if name == IDENTITY else "module_backbone"
        raise InputError(f"'{name}' is no name to build from: use {made_by}(...)")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == oriented_edges.NAME:
            return oriented_edges.create(input_size=input_size)
        if name in torchvision_models.names():
            return torchvision_models.create(name, pretrained=pretrained, input_size=input_size)
        if name in timm_models.names():
            return timm_models.create(name, pretrained=pretrained, input_size=input_size)
    raise InputError(f"no encoder is named '{name}'; {_suggestion(name)}")


def _suggestion(name: str) -> str:
    prefix, slash, plain = name.lower().rpartition("/")
    own, others = torchvision_models.names(), timm_models.names()
    # What the prefix says counts first, but a torchvision name without its prefix is a likely slip.
    known = own if f"{prefix}{slash}" == torchvision_models.PREFIX else [*others, *own]
    by_plain_name = {candidate.rpartition("/")[2].lower(): candidate for candidate in reversed(known)}
    close = difflib.get_close_matches(plain, by_plain_name, n=4)
    if not close:
        return "names are timm's ('resnet18'), torchvision's ('torchvision/resnet18')"
    return "did you mean " + ", ".join(by_plain_name[match] for match in close) + "?"
