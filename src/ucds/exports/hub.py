"""Folders in the layout of a model hub, which hold a model and its card."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path

from ucds.errors import InputError, shown
from ucds.exports.graph import describe
from ucds.files import making, read_object, require_writable, write_text_atomically
from ucds.training.model_file import StoredModel, save_model
from ucds.training.run_folder import MODEL_FILE, read_run

CONFIG_FILE = "config.json"
CARD_FILE = "README.md"
_FILES = (MODEL_FILE, CONFIG_FILE, CARD_FILE)
_TEMPLATE = files("ucds.exports") / "template" / "card.md"


def require_hub_folder(folder: Path, needed: int) -> None:
    """Make sure, before any work, that a folder is new or an earlier export, and has room for some bytes."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} is a file or a link: name a folder")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    others = names - {".git", ".gitattributes"}  # which a new clone of a hub's repository has
    known = read_object(folder / CONFIG_FILE) or {}
    if others and not (others <= {*_FILES} and known.get("model_type") == "ucds" and "card" in known):
        raise InputError(f"{folder} holds something other than an exported model: choose another `out`")
    require_writable(folder / CONFIG_FILE, needed=needed)


def write_hub_folder(stored: StoredModel, folder: Path, run: Path | None) -> None:
    """Write a model with its configuration and its card, into a new folder or over an earlier export.

    The card tells what the run folder knows of its data, if there is one. Where its description of the run
    cannot be read, nothing is written.
    """
    card = write_card(stored, run)
    config = {"model_type": "ucds", **describe(stored, "ucds"), "card": asdict(stored.card)}
    with making(folder) as partial:  # others may enter it, in contrast to a run folder
        save_model(partial, stored)
        write_text_atomically(partial / CONFIG_FILE, json.dumps(config, indent=2) + "\n")
        write_text_atomically(partial / CARD_FILE, card)


def write_card(stored: StoredModel, run: Path | None) -> str:
    """Write the card as Markdown, with its metadata in YAML at the top.

    The card names no path and no file of the samples. Names of domains are names of folders: look at them
    before you publish the card.
    """
    from huggingface_hub import ModelCard, ModelCardData

    card, images = stored.card, stored.card.encoder.input_size is not None
    metadata = ModelCardData(
        library_name="ucds",
        pipeline_tag="image-feature-extraction" if images else "feature-extraction",
        tags=["ucds", "clustering", "unsupervised", "domain-shift", f"role-{card.role}"],
        base_model=_hub_name(card.weights),
    )
    return str(
        ModelCard.from_template(
            metadata,
            template_str=_TEMPLATE.read_text("utf-8"),
            card=card,
            cell=_as_text,
            images=images,
            described={} if run is None else read_run(run),
            fingerprint=stored.fingerprint,
            proportions=stored.proportions.T.tolist(),
        )
    )


def _as_text(value: object) -> str:
    """Escape a text so that Markdown and HTML show it unchanged, on one line."""
    return re.sub(r"([\\`*\[\]|#~!])", r"\\\1", escape(shown(str(value)), quote=False))


def _hub_name(origin: str) -> str | None:
    """Return the name of the published model that the encoder is, if its weights came from the hub."""
    name = origin.removeprefix("hub: ").split("@")[0].strip()
    return name if origin.startswith("hub: ") and name.count("/") == 1 and " " not in name else None
