"""Backbones from torchvision's classification models, named ``torchvision/NAME``."""

from __future__ import annotations

from typing import Any

from torch import nn

from ucds.backbones.checkpoint_files import load_file
from ucds.backbones.downloads import download_state_dict
from ucds.backbones.spec import IMAGENET_MEAN, IMAGENET_STD, Network
from ucds.errors import InputError

PREFIX = "torchvision/"

# The auxiliary classifiers would make these two return several outputs in training mode; their weights
# were trained on inputs in -1..1, which they make themselves of the usual normalisation.
_INCEPTION = {"aux_logits": False, "transform_input": True, "init_weights": False}

# Models whose parameters depend on the size of the input, and the argument that sets it.
_SIZE_ARGUMENTS = {"vit_": "image_size", "maxvit_": "input_size"}

# Where classification models keep their classifier.
_CLASSIFIER_NAMES = ("fc", "classifier", "heads", "head")


def names() -> list[str]:
    """All classification models of torchvision, with our prefix."""
    from torchvision import models

    return [PREFIX + name for name in models.list_models(module=models)]


def create(name: str, *, pretrained: bool, input_size: int | None) -> Network:
    """Builds a torchvision model without its classifier.

    Args:
        name: ``torchvision/NAME``.
        pretrained: Whether to load torchvision's best weights, from the cache or by download.
        input_size: Side of the crop in pixels; the weights' own if ``None``.

    Raises:
        UserError: If pre-trained weights are asked for and cannot be had, or the size does not suit.
    """
    from torchvision import models

    short = name.removeprefix(PREFIX)
    weights = models.get_model_weights(short).DEFAULT
    recipe = weights.transforms()
    size = input_size or recipe.crop_size[0]
    try:
        module = without_classifier(models.get_model(short, weights=None, **_arguments(short, size)))
    except (ValueError, RuntimeError, AssertionError) as error:
        raise InputError(f"cannot build '{name}' for inputs of {size} pixels: {error}") from error
    origin = "none (random)"
    if pretrained:
        load_file(module, download_state_dict(weights.url, name), name)
        origin = f"hub: torchvision {weights}"
    return Network(module, size, tuple(recipe.mean), tuple(recipe.std), origin)


def create_resnet50(name: str, weights_url: str, *, pretrained: bool, input_size: int | None) -> Network:
    """Builds torchvision's ResNet-50 for weights that were published for it elsewhere.

    Args:
        name: The backbone's name, for errors.
        weights_url: Where the weights were published.
        pretrained: Whether to load them, from the cache or by download.
        input_size: Side of the crop in pixels; 224 if ``None``.

    Raises:
        UserError: If the weights are asked for and cannot be had.
    """
    from torchvision import models

    module = without_classifier(models.resnet50(weights=None))
    origin = "none (random)"
    if pretrained:
        load_file(module, download_state_dict(weights_url, name), name)
        origin = f"hub: {weights_url}"
    return Network(module, input_size or 224, IMAGENET_MEAN, IMAGENET_STD, origin)


def without_classifier(module: nn.Module) -> nn.Module:
    """Removes the last linear layer, and a dropout right before it; changes the module in place.

    Layers before it stay: VGG keeps its two wide layers and returns 4,096 features, as SHOT has it.
    SqueezeNet, which classifies by convolution, returns its feature maps averaged over space.
    A module without a classifier of a usual name is returned as it is.
    """
    name = next((name for name in _CLASSIFIER_NAMES if hasattr(module, name)), None)
    if name is None:
        return module
    classifier = getattr(module, name)
    if isinstance(classifier, nn.Linear):
        setattr(module, name, nn.Identity())
    elif isinstance(classifier, nn.Sequential):
        _strip(classifier)
    return module


def _strip(classifier: nn.Sequential) -> None:
    """Replaces the last linear or convolutional layer and its dropout by identities, so that keys stay."""
    weighted = [i for i, layer in enumerate(classifier) if isinstance(layer, nn.Linear | nn.Conv2d)]
    if not weighted:
        return
    last = weighted[-1]
    stripped = [last]
    if last > 0 and isinstance(classifier[last - 1], nn.Dropout):
        stripped.append(last - 1)
    for position in stripped:
        classifier[position] = nn.Identity()


def _arguments(short: str, size: int) -> dict[str, Any]:
    if short in ("googlenet", "inception_v3"):
        return dict(_INCEPTION)
    for prefix, argument in _SIZE_ARGUMENTS.items():
        if short.startswith(prefix):
            return {argument: (size, size) if argument == "input_size" else size}
    return {}
