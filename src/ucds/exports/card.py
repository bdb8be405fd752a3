"""Writes the card of a model, which says what it is, how it was made, and what it is not for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ucds.errors import DamagedFileError
from ucds.files import parse_json
from ucds.training.model_file import StoredModel


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
    described = {} if run is None else _described(run)
    sections = [
        _metadata(stored),
        f"# {stored.card.name}",
        _summary(stored),
        _CROSSED[stored.card.role],
        "## How to use it",
        _usage(stored),
        "## How it was made",
        _table(_origin(stored, described)),
        _settings(described),
        "## Clusters",
        _CLUSTERS,
        _proportions(stored),
        "## What it is not for",
        _LIMITS,
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _described(run: Path) -> dict[str, Any]:
    path = run / "run.json"
    try:
        content = parse_json(path.read_bytes()) if path.exists() else {}
    except (OSError, ValueError):
        content = None
    if not (isinstance(content, dict) and isinstance(content.get("versions", {}), dict)):
        raise DamagedFileError(f"{path} is damaged: delete it, and the card will do without")
    return content


def _metadata(stored: StoredModel) -> str:
    images = stored.card.backbone.input_size is not None
    entries = {
        "library_name": "ucds",
        "pipeline_tag": "image-feature-extraction" if images else "feature-extraction",
        "tags": ["ucds", "clustering", "unsupervised", "domain-shift", f"role-{stored.card.role}"],
        "base_model": _hub_name(stored),
    }
    # JSON is YAML too.
    lines = [f"{name}: {json.dumps(value)}" for name, value in entries.items() if value is not None]
    return "\n".join(["---", *lines, "---"])


def _hub_name(stored: StoredModel) -> str | None:
    """Return the name of the published model that the encoder is, if its weights came from the hub."""
    origin = stored.card.weights
    name = origin.removeprefix("hub: ").split("@")[0].strip()
    return name if origin.startswith("hub: ") and name.count("/") == 1 and " " not in name else None


def _summary(stored: StoredModel) -> str:
    card = stored.card
    what = "embeddings" if card.backbone.input_size is None else "images"
    side = "client" if card.role == "target" else "provider"
    return (
        f"Sorts {what} into {card.n_clusters} clusters. It was learnt without a single class label, on the "
        f"{side}'s side of `ucds` (unsupervised clustering under domain shift, with source privacy)."
    )


_CROSSED = {
    "target": """\
Between the provider and the client crossed at most one integer for each of the client's samples (a cluster
number of the provider's model), and the number of clusters. Neither party has seen the other's training data
or model. If the client asked a service, the service saw the samples that it was asked about.""",
    "source": """\
This is a provider's model. In the exchange that it was made for it stays with its owner, and only one integer
for each of a client's samples leaves. Whoever has the model itself can test whether samples were among its
training data.""",
}

_CLUSTERS = """\
The clusters have numbers, and no meaning beyond that: somebody has to look at them and name them. The
proportions are shares of the samples of each domain that the model was trained on."""

_LIMITS = """\
- Not for decisions about people, or about health, that nobody checks: clusters are groups of alike samples,
  and no diagnoses.
- Not for samples of another kind than those it was trained on: it gives every sample a cluster, also one that
  belongs to none.
- Not a proof of privacy: integers are access control. Many answers of a model let others learn about its
  training data or copy it."""


def _usage(stored: StoredModel) -> str:
    given = "a folder of images" if stored.card.backbone.input_size is not None else "an array (n, d)"
    return (
        "```python\nimport ucds\n\n"
        'model = ucds.from_pretrained("OWNER/NAME")  # or a local folder\n'
        f"clusters = model.predict(samples)  # {given}\n```"
    )


def _origin(stored: StoredModel, described: dict[str, Any]) -> dict[str, object]:
    card, versions = stored.card, described.get("versions", {})
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
    }


def _settings(described: dict[str, Any]) -> str:
    settings = described.get("settings")
    return f"Settings of the method:\n\n{_table(settings)}" if isinstance(settings, dict) else ""


def _proportions(stored: StoredModel) -> str:
    head = ["cluster", *stored.card.domains]
    rows = [
        [str(k), *(f"{share:.3f}" for share in row)] for k, row in enumerate(stored.proportions.T.tolist())
    ]
    return "\n".join(_row(cells) for cells in (head, ["---"] * len(head), *rows))


def _table(entries: dict[str, object]) -> str:
    rows = [[name, str(value)] for name, value in entries.items()]
    return "\n".join(_row(cells) for cells in (["", ""], ["---", "---"], *rows))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
