"""Folders in the layout of a model hub: written from a run with a card, uploaded, and opened again."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ucds.errors import DamagedFileError, InputError, one_line
from ucds.exports.graph import describe
from ucds.files import parse_json, write_text_atomically, writing
from ucds.training.loaded import Model, load
from ucds.training.model_file import StoredModel, save_model
from ucds.training.options import Compute
from ucds.training.run_folder import MODEL_FILE, RUN_FILE

CONFIG_FILE = "config.json"
CARD_FILE = "README.md"
_FILES = (MODEL_FILE, CONFIG_FILE, CARD_FILE)


_TEMPLATE = """\
---
{{ card_data }}
---

# {{ card.name }}

Sorts {{ "images" if images else "embeddings" }} into {{ card.n_clusters }} clusters. It was learnt without a
single class label, on the {{ "client" if card.role == "target" else "provider" }}'s side of `ucds`
(unsupervised clustering under domain shift, with source privacy).

{% if card.role == "target" -%}
Between the provider and the client crossed at most one integer for each of the client's samples (a cluster
number of the provider's model), and the number of clusters. Neither party has seen the other's training data
or model. If the client asked a service, the service saw the samples that it was asked about.
{%- else -%}
This is a provider's model. In the exchange that it was made for it stays with its owner, and only one integer
for each of a client's samples leaves. Whoever has the model itself can test whether samples were among its
training data.
{%- endif %}

## How to use it

```python
import ucds

model = ucds.from_pretrained("OWNER/NAME")  # or a local folder
clusters = model.predict(samples)  # {{ "a folder of images" if images else "an array (n, d)" }}
```

## How it was made

|  |  |
| --- | --- |
{% for name, value in origin.items() -%}
| {{ name }} | {{ value }} |
{% endfor %}
## Clusters

The clusters have numbers, and no meaning beyond that: somebody has to look at them and name them. The
proportions are shares of the samples of each domain that the model was trained on.

| cluster |{% for name in domains %} {{ name }} |{% endfor %}
| --- |{% for _ in domains %} --- |{% endfor %}
{% for row in proportions -%}
| {{ loop.index0 }} |{% for share in row %} {{ "%.3f" | format(share) }} |{% endfor %}
{% endfor %}
## What it is not for

- Not for decisions about people, or about health, that nobody checks: clusters are groups of alike samples,
  and no diagnoses.
- Not for samples of another kind than those it was trained on: it gives every sample a cluster, also one that
  belongs to none.
- Not a proof of privacy: integers are access control. Many answers of a model let others learn about its
  training data or copy it.
"""


def write_hub_folder(stored: StoredModel, folder: Path, run: Path | None) -> None:
    """Write a model with its configuration and its card, into a new folder or over an earlier export.

    Args:
        stored: model to write.
        folder: folder to write.
        run: run folder, whose settings and seed the card tells; ``None`` if there is none.

    Raises:
        InputError: the folder holds other things.
        DamagedFileError: the description of the run cannot be read; nothing was written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if names and not names <= {*_FILES, ".git", ".gitattributes"}:
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
    message: str = "Upload a ucds model",
) -> str:
    """Upload a model to a hub, in the layout of :func:`write_hub_folder`.

    Args:
        run: folder of a finished run, folder that ``ucds export --format hub`` wrote (with the card as you
            have edited it), or a model that :func:`ucds.load` opened.
        name: OWNER/NAME of the repository, which is made if it does not exist.
        private: whether a new repository can be seen by its owner only.
        token: token of the hub; the one that ``hf auth login`` keeps if ``None``.
        endpoint: address of the hub; the public one if ``None``.
        message: message of the commit.

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
                repo_id=name, folder_path=folder, commit_message=message, allow_patterns=[*_FILES]
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
        how: further arguments of :func:`ucds.load`, such as ``role`` and ``accelerator``.

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
    before you publish the card.

    Args:
        stored: model that the card describes.
        run: run folder, whose settings and seed the card tells; ``None`` if there is none.

    Raises:
        DamagedFileError: the description of the run cannot be read.
    """
    from huggingface_hub import ModelCard, ModelCardData

    card, images = stored.card, stored.card.backbone.input_size is not None
    origin = _origin(stored, {} if run is None else _described(run))
    metadata = ModelCardData(
        library_name="ucds",
        pipeline_tag="image-feature-extraction" if images else "feature-extraction",
        tags=["ucds", "clustering", "unsupervised", "domain-shift", f"role-{card.role}"],
        base_model=_hub_name(card.weights),
    )
    return str(
        ModelCard.from_template(
            metadata,
            template_str=_TEMPLATE,
            card=card,
            images=images,
            origin={_cell(name): _cell(value) for name, value in origin.items()},
            domains=list(map(_cell, card.domains)),
            proportions=stored.proportions.T.tolist(),
        )
    )


def _described(run: Path) -> dict[str, Any]:
    path = run / RUN_FILE
    try:
        content = parse_json(path.read_bytes()) if path.exists() else {}
    except (OSError, ValueError):
        content = None
    if not (isinstance(content, dict) and isinstance(content.get("versions", {}), dict)):
        raise DamagedFileError(f"{path} is damaged: delete it, and the card will do without")
    return content


def _hub_name(origin: str) -> str | None:
    """Return the name of the published model that the encoder is, if its weights came from the hub."""
    name = origin.removeprefix("hub: ").split("@")[0].strip()
    return name if origin.startswith("hub: ") and name.count("/") == 1 and " " not in name else None


def _origin(stored: StoredModel, described: dict[str, Any]) -> dict[str, object]:
    card, versions = stored.card, described.get("versions", {})
    settings = described.get("settings")
    return {
        "encoder": card.backbone.name,
        "weights that it started from": card.weights,
        "trained": "the whole encoder" if card.tune == "full" else "the layers above the encoder",
        "domains": ", ".join(card.domains),
        "digest of the training data": str(described.get("data", "not known"))[:16],
        "clusters, K": card.n_clusters,
        "method": described.get("method", "not known"),
        "stages": ", ".join(card.stages),
        "seed": described.get("seed", "not known"),
        "labels of a provider": "used or weighed" if described.get("labels") else "none",
        "fingerprint of the clusters": stored.fingerprint,
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()) or "not known",
        **(settings if isinstance(settings, dict) else {}),
    }


def _cell(value: object) -> str:
    """Write a value so that it stays in its cell of a table."""
    return " ".join(str(value).split()).replace("|", "\\|")
