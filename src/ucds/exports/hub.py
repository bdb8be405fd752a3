"""Folders in the layout of a model hub: written from a run with a card, uploaded, and opened again."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from ucds.errors import InputError, one_line
from ucds.exports.graph import describe
from ucds.files import read_object, write_text_atomically, writing
from ucds.training.loaded import Model, load
from ucds.training.model_file import StoredModel, save_model
from ucds.training.options import Compute
from ucds.training.run_folder import MODEL_FILE, RUN_FILE

CONFIG_FILE = "config.json"
CARD_FILE = "README.md"
_FILES = (MODEL_FILE, CONFIG_FILE, CARD_FILE)
_TEMPLATE = files("ucds.exports") / "template" / "card.md"


def write_hub_folder(stored: StoredModel, folder: Path, run: Path | None) -> None:
    """Write a model with its configuration and its card, into a new folder or over an earlier export.

    The card tells the settings and the seed of the run folder, if there is one.

    Raises:
        InputError: the folder holds other things.
        DamagedFileError: the description of the run cannot be read; nothing was written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if not names <= {*_FILES, ".git", ".gitattributes"}:
        raise InputError(f"{folder} holds other things than an exported model: choose another --out")
    card = write_card(stored, run)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)  # for others, in contrast to a run folder
    save_model(folder, stored)
    config = {"model_type": "ucds", **describe(stored), "card": asdict(stored.card)}
    write_text_atomically(folder / CONFIG_FILE, json.dumps(config, indent=2) + "\n")
    write_text_atomically(folder / CARD_FILE, card)


def push_to_hub(
    run: str | Path | Model,
    name: str,
    *,
    private: bool = True,
    token: str | None = None,
    endpoint: str | None = None,
) -> str:
    """Upload a model to a hub, in the layout of :func:`write_hub_folder`.

    Args:
        run: folder of a finished run, folder that ``ucds export --format hub`` wrote (with the card as you
            have edited it), or a model that :func:`ucds.load` opened.
        name: OWNER/NAME of the repository, which is made if it does not exist.
        private: whether a new repository can be seen by its owner only.
        token: token of the hub; the one that ``hf auth login`` keeps if ``None``.
        endpoint: address of the hub; the public one if ``None``.

    Returns:
        Address of the commit.

    Raises:
        InputError: the run or the name cannot be used, or the hub refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    with tempfile.TemporaryDirectory() as place:
        folder = _exported(run, Path(place))
        api = HfApi(endpoint=endpoint, token=token)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            commit = api.upload_folder(
                repo_id=name,
                folder_path=folder,
                commit_message="Upload a ucds model",
                allow_patterns=[*_FILES],
            )
        except (HfHubHTTPError, HFValidationError, OSError) as error:
            raise InputError(f"the hub did not take {name}: {one_line(error)}") from None
    return str(commit.commit_url)


def _exported(run: str | Path | Model, place: Path) -> Path:
    """Return a folder that was exported before, once it is known to be whole; export all else to a place."""
    model = run if isinstance(run, Model) else load(run, compute=Compute("cpu"))
    folder = None if isinstance(run, Model) else Path(run)
    if folder is not None and all((folder / name).exists() for name in _FILES):
        return folder
    write_hub_folder(model.stored, place, folder)
    return place


def from_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    **how: Any,
) -> Model:
    """Open a model of a hub, or of a local folder in a hub's layout.

    A folder of this name is opened without a look at the hub. Model files hold numbers and a description, and
    no code.

    Args:
        name: OWNER/NAME of a repository, or a folder.
        revision: branch, tag or commit of the repository; the newest if ``None``.
        token: token of the hub; the one that ``hf auth login`` keeps if ``None``.
        endpoint: address of the hub; the public one if ``None``.
        how: further arguments of :func:`ucds.load`, such as ``role`` and ``compute``.

    Raises:
        InputError: there is no such model, or the hub cannot be reached.
        DamagedFileError: the model file cannot be read.
    """
    if Path(name).is_dir():
        return load(name, **how)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        folder = snapshot_download(
            str(name),
            revision=revision,
            token=token,
            endpoint=endpoint,
            library_name="ucds",
            allow_patterns=[*_FILES],
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise InputError(f"{name} is neither a folder nor a model of the hub: {one_line(error)}") from None
    return load(folder, **how)


def write_card(stored: StoredModel, run: Path | None) -> str:
    """Write the card as Markdown, with its metadata in YAML at the top.

    The card names no path and no file of the samples. Names of domains are names of folders: look at them
    before you publish the card. It tells the settings and the seed of the run folder, if there is one.

    Raises:
        DamagedFileError: the description of the run cannot be read.
    """
    from huggingface_hub import ModelCard, ModelCardData

    card, images = stored.card, stored.card.backbone.input_size is not None
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
            images=images,
            described=(run and read_object(run / RUN_FILE)) or {},
            fingerprint=stored.fingerprint,
            proportions=stored.proportions.T.tolist(),
        )
    )


def _hub_name(origin: str) -> str | None:
    """Return the name of the published model that the encoder is, if its weights came from the hub."""
    name = origin.removeprefix("hub: ").split("@")[0].strip()
    return name if origin.startswith("hub: ") and name.count("/") == 1 and " " not in name else None
