"""Backbones from repositories that follow PyTorch's hub protocol, named ``hub/OWNER/REPO[:REF]:ENTRY``."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import nn

from ucds.backbones import torchvision_models
from ucds.backbones.downloads import REMEDY, require_reachable
from ucds.backbones.spec import Network
from ucds.errors import InputError, one_line

PREFIX = "hub/"

# Weights for torchvision's own ResNet-50: built here, so that none of the repository's code needs to run.
RESNET50_WEIGHTS = {
    "hub/facebookresearch/swav:resnet50": (
        "https://dl.fbaipublicfiles.com/deepcluster/swav_800ep_pretrain.pth.tar"
    )
}

_FORM = re.compile(r"hub/(?P<owner>[\w.-]+)/(?P<repo>[\w.-]+)(:(?P<ref>[\w./-]+))?:(?P<entry>\w+)")


def create(name: str, *, pretrained: bool, input_size: int | None, download: bool = True) -> Network:
    """Build a hub model without its classifier.

    Unless the name is among ``RESNET50_WEIGHTS``, this runs Python code of the repository: naming it is the
    user's consent.

    Args:
        name: ``hub/OWNER/REPO:ENTRY``, or ``hub/OWNER/REPO:REF:ENTRY`` for a branch or tag.
        pretrained: value of the entry point's argument ``pretrained``.
        input_size: side of the crop in pixels; 224 if ``None``.
        download: ``True`` if the repository's code may be fetched; otherwise it must be in the cache.

    Raises:
        InputError: the name is malformed, or the repository or its weights cannot be had.
    """
    from torchvision.models import ResNet50_Weights

    if name in RESNET50_WEIGHTS:
        return torchvision_models.create(
            name,
            pretrained=pretrained,
            input_size=input_size,
            architecture="resnet50",
            url=RESNET50_WEIGHTS[name],
        )
    match = _FORM.fullmatch(name)
    if match is None:
        raise InputError(f"hub backbones are named hub/OWNER/REPO:ENTRY, not '{name}'")
    module = _load(_repository(match, name, download), match["entry"], name, pretrained)
    origin = f"hub: {name.removeprefix(PREFIX)}" if pretrained else "none (random)"
    usual = ResNet50_Weights.DEFAULT.transforms()  # the normalisation of ImageNet
    stripped = torchvision_models.without_classifier(module)
    return Network(stripped, input_size or 224, tuple(usual.mean), tuple(usual.std), origin)


def _repository(match: re.Match[str], name: str, download: bool) -> str:
    """Return the repository with its reference; with the cached one if the name leaves it open."""
    repository = f"{match['owner']}/{match['repo']}"
    for ref in [match["ref"]] if match["ref"] else ["main", "master"]:
        folder = f"{match['owner']}_{match['repo']}_{ref}".replace("/", "_")
        if Path(torch.hub.get_dir(), folder).is_dir():
            return f"{repository}:{ref}"
    if not download:
        raise InputError(
            f"backbone '{name}' needs code of the repository {repository}, which is not in the cache; "
            f"if you trust that code, fetch it once with build_backbone('{name}', weights='none')"
        )
    require_reachable(
        "https://github.com", f"code of '{name}'", "connect once to fetch it, or take another --backbone"
    )
    return f"{repository}:{match['ref']}" if match["ref"] else repository


def _load(repository: str, entry: str, name: str, pretrained: bool) -> nn.Module:
    try:
        module = torch.hub.load(  # type: ignore[no-untyped-call]
            repository, entry, trust_repo=True, verbose=False, pretrained=pretrained
        )
    except Exception as error:  # code of any repository raises anything
        remedy = REMEDY if pretrained else "check the repository's hubconf.py"
        raise InputError(f"cannot build '{name}': {one_line(error)}; {remedy}") from error
    if not isinstance(module, nn.Module):
        raise InputError(f"'{name}' returns a {type(module).__name__}, not a network")
    return module
