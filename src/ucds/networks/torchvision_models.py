"""Networks from torchvision's classification models, named ``torchvision/NAME``."""

from __future__ import annotations

from typing import Any

from torch import nn

from ucds.errors import InputError
from ucds.networks.encoder import NetworkEncoder, image_network
from ucds.networks.weight_files import download_weights, load_file

PREFIX = "torchvision/"

PUBLISHED = {
    "resnet50_swav": ("resnet50", "https://dl.fbaipublicfiles.com/deepcluster/swav_800ep_pretrain.pth.tar")
}
"""Architecture and address of weights that their authors published for a model of torchvision."""

# Where classification models keep their classifier.
_CLASSIFIER_NAMES = ("fc", "classifier", "heads", "head")


def names() -> list[str]:
    """List torchvision's classification models and the :data:`PUBLISHED` weights, with our prefix."""
    from torchvision import models

    return [PREFIX + name for name in (*models.list_models(module=models), *PUBLISHED)]


def create(name: str, *, pretrained: bool, input_size: int | None) -> NetworkEncoder:
    """Build a torchvision model without its classifier; see :func:`ucds.networks.build.build_network`."""
    from torchvision import models

    short, url = PUBLISHED.get(name.removeprefix(PREFIX), (name.removeprefix(PREFIX), None))
    weights = models.get_model_weights(short).DEFAULT
    recipe = weights.transforms()
    size = input_size or recipe.crop_size[0]
    try:
        module = without_classifier(models.get_model(short, weights=None, **_arguments(short, size)))
    except (ValueError, RuntimeError, AssertionError) as error:
        raise InputError(f"cannot build '{name}' for inputs of {size} pixels: {error}") from error
    origin = "none (random)"
    if pretrained:
        load_file(module, download_weights(url or weights.url, name), name)
        origin = f"hub: {url or f'torchvision {weights}'}"
    return image_network(name, module, size, tuple(recipe.mean), tuple(recipe.std), origin)


def without_classifier(module: nn.Module) -> nn.Module:
    """Replace the last linear layer, and a dropout right before it, by identities, in place.

    Earlier layers stay: VGG keeps its two wide layers and returns 4,096 features, as in SHOT. SqueezeNet,
    which classifies by convolution, returns its feature maps, averaged over space. A module without a
    classifier of a usual name is returned unchanged.
    """
    name = next((name for name in _CLASSIFIER_NAMES if hasattr(module, name)), "")
    classifier = getattr(module, name, None)
    if isinstance(classifier, nn.Linear):
        setattr(module, name, nn.Identity())
    elif isinstance(classifier, nn.Sequential):
        weighted = [i for i, layer in enumerate(classifier) if isinstance(layer, nn.Linear | nn.Conv2d)]
        for last in weighted[-1:]:
            classifier[last] = nn.Identity()
            if last > 0 and isinstance(classifier[last - 1], nn.Dropout):
                classifier[last - 1] = nn.Identity()
    return module


def _arguments(short: str, size: int) -> dict[str, Any]:
    """Return the arguments that a model needs besides its name."""
    if short in ("googlenet", "inception_v3"):
        # The auxiliary classifiers would make these two return several outputs in training mode; their
        # weights were trained on inputs in -1..1, which they make themselves of the usual normalisation.
        return {"aux_logits": False, "transform_input": True, "init_weights": False}
    if short.startswith("vit_"):
        return {"image_size": size}
    return {"input_size": (size, size)} if short.startswith("maxvit_") else {}
