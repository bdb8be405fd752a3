"""Checks for packages beyond those of the plain installation, and says how to install them."""

from __future__ import annotations

from importlib.util import find_spec

from ucds.errors import InputError

EXTRAS = {
    "torch": ("torch", "torchvision", "timm", "lightning_fabric", "onnx"),
    "serve": ("fastapi", "httptools", "prometheus_client", "sqlalchemy"),
    "postgres": ("psycopg",),
    "figures": ("matplotlib", "pandas", "seaborn"),
    "export": ("onnx", "skops"),
    "datasets": ("datasets",),
    "ray": ("ray",),
    "privacy": ("opendp",),
    "umap": ("umap",),
    "heif": ("pillow_heif",),
    "dicom": ("pydicom",),
}
"""Packages that are imported with each extra, by its name in ``pip install 'ucds[NAME]'``."""


def require_extra(extra: str, what: str) -> None:
    """Make sure, before any work, that ``what`` was asked for has the packages of one of :data:`EXTRAS`."""
    if any(find_spec(package) is None for package in EXTRAS[extra]):
        raise InputError(f"{what} needs further packages: pip install 'ucds[{extra}]'")
