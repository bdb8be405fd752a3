"""Networks from timm, by its model names, with or without a pre-training tag."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from ucds.encoders.hub import require_reachable
from ucds.errors import InputError, one_line
from ucds.networks.encoder import NetworkEncoder, StateDict, image_network
from ucds.networks.weight_files import REMEDY, download_weights


def names() -> list[str]:
    """List all names that timm knows: architectures, and architectures with a tag of their pre-training."""
    import timm

    return [*timm.list_models(), *timm.list_pretrained()]


def create(name: str, *, pretrained: bool, input_size: int | None) -> NetworkEncoder:
    """Build a timm model without its classifier; see :func:`ucds.networks.build.build_network`."""
    import timm
    from timm.models import PretrainedCfg

    config = timm.get_pretrained_cfg(name) or PretrainedCfg()
    arguments: dict[str, Any] = {"num_classes": 0}
    if input_size is not None and config.fixed_input_size:
        arguments["img_size"] = input_size
    origin = "none (random)"
    if pretrained:
        arguments |= {"pretrained": True, "pretrained_cfg_overlay": _weights_source(name, config)}
        origin = f"hub: {config.hf_hub_id or config.url}"
    try:
        module = timm.create_model(name, **arguments)
    except Exception as error:  # the hub's client raises its own errors besides OSError
        reason = f"cannot load pre-trained weights of '{name}'" if pretrained else f"cannot build '{name}'"
        raise InputError(f"{reason}: {one_line(error)}" + (f"; {REMEDY}" if pretrained else "")) from error
    mean: Any = tuple(map(float, config.mean))
    std: Any = tuple(map(float, config.std))
    return image_network(name, module, input_size or config.input_size[-1], mean, std, origin)


def adapt(module: nn.Module, state: StateDict) -> StateDict:
    """Convert the original authors' format of a model family to timm's, if timm knows how."""
    convert = getattr(sys.modules[type(module).__module__], "checkpoint_filter_fn", None)
    return state if convert is None else convert(state, module)


def _weights_source(name: str, config: Any) -> dict[str, Any]:
    """Return timm's option for the cached file, if there is one; else make sure that a download can work."""
    if not config.has_weights:
        raise InputError(f"timm has no pre-trained weights for '{name}'; {REMEDY}")
    if not config.hf_hub_id:
        return {"file": str(download_weights(config.url, name))}
    from huggingface_hub import constants, try_to_load_from_cache

    repository, _, revision = config.hf_hub_id.partition("@")
    own = [config.hf_hub_filename] if config.hf_hub_filename else []
    files = own or ["model.safetensors", "pytorch_model.bin"]
    for filename in files:
        path = try_to_load_from_cache(repository, filename, revision=revision or None)
        if isinstance(path, str):
            return {"file": path}
    wanted = f"{files[0]} of the repository {repository} (the weights of '{name}')"
    if constants.HF_HUB_OFFLINE:
        raise InputError(f"{wanted} is not in the cache, but HF_HUB_OFFLINE forbids a download; {REMEDY}")
    require_reachable(constants.ENDPOINT, wanted, REMEDY)
    return {}
