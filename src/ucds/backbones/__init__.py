"""Backbones: networks that turn inputs into features, built by name, from a module, or the identity."""

from __future__ import annotations

from ucds.backbones.build import StoredBackbone, build_backbone, find_backbone, rebuild_backbone
from ucds.backbones.spec import Backbone, BackboneSpec, identity_backbone, module_backbone

__all__ = [
    "Backbone",
    "BackboneSpec",
    "StoredBackbone",
    "build_backbone",
    "find_backbone",
    "identity_backbone",
    "module_backbone",
    "rebuild_backbone",
]
