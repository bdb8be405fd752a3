"""Writes the card of a model, which says what it is, how it was made, and what it is not for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ucds.errors import DamagedFileError
from ucds.files import parse_json
from ucds.training.model_file import StoredModel
from ucds.training.run_folder import RUN_FILE

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
