"""The settings of the method, with the paper's values where the paper gives them.

Every field that the paper leaves unsaid is listed with its reason in ``docs/paper.md``.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ucds.choices import SPACES, Recipe, Space, Transfer, Tune
from ucds.errors import UserError


class Settings(BaseModel):
    """Named values, immutable; unknown names and impossible values are refused."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Build settings, saying in one line what is wrong with them.

        Raises:
            UserError: an unknown name, a wrong type or an impossible value.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            problems = "; ".join(_in_words(problem) for problem in error.errors())
            raise UserError(f"bad configuration: {problems}") from None

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that change with any setting."""
        canonical = json.dumps(self.model_dump(), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


class Config(Settings):
    """All settings of a run.

    Names follow the field; the paper's symbol, where it has one, ends the description.
    """

    # Model
    bottleneck_width: int = Field(256, ge=1, description="width of the features and prototypes, d_f")
    tune: Tune = Field("full", description="train everything, or only the new layers")

    # Clustering loss (Eq. 1, 3, 4)
    transport_weight: float = Field(1.0, ge=0)
    information_weight: float = Field(1.0, ge=0)
    mixing_weight: float = Field(1.0, ge=0)
    distillation_weight: float = Field(1.0, ge=0)
    epsilon: float = Field(0.01, gt=0, description="entropic regularisation of the transport, epsilon")
    transport_tolerance: float = Field(1e-3, gt=0, description="L1 error allowed in the plan's marginals")
    transport_max_iterations: int = Field(100, ge=1)
    mixing_alpha: float = Field(0.3, gt=0, description="concentration of the mixing ratio, alpha")

    # Proportions (Eq. 2)
    source_proportion_momentum: float = Field(0.9999, ge=0, le=1, description="beta_0 in stage 1")
    target_proportion_momentum: float = Field(0.99, ge=0, le=1, description="beta_0 in stages 2 and 3")

    # Pseudo-labels of stage 2
    label_smoothing: float = Field(0.1, ge=0, le=1, description="weight of the uniform distribution, gamma")
    ensemble_momentum: float = Field(0.6, ge=0, le=1, description="weight of past targets, tau")

    # Optimisation
    batch_size: int = Field(64, ge=2, description="samples a step, over all domains and processes")
    learning_rate: float = Field(1e-3, gt=0, description="eta_0 of pre-trained layers")
    new_layer_learning_rate: float = Field(1e-2, gt=0, description="eta_0 of bottleneck and prototypes")
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool = True
    weight_decay: float = Field(1e-3, ge=0)
    decay_rate: float = Field(10.0, ge=0, description="a in eta = eta_0 (1 + a p)^-b")
    decay_power: float = Field(0.75, ge=0, description="b in eta = eta_0 (1 + a p)^-b")
    source_epochs: int = Field(100, ge=1)
    clustering_epochs: int = Field(30, ge=1)
    refinement_epochs: int = Field(30, ge=1)

    # The recipe "ucds" (docs/recipe.md); the paper's method looks at none of these
    recipe: Recipe = Field("pcd", description="the paper's method, or ours")
    domain_centring: bool = Field(True, description="each source domain is seen from its own mean")
    domain_transport: bool = Field(True, description="source samples are assigned by transport a domain")
    proportion_relaxation: float = Field(0.1, gt=0, description="cost of leaving equal cluster sizes")
    source_starts: int = Field(10, ge=1, description="k-means starts, which vote")
    spaces: tuple[Space, ...] = Field(
        SPACES, min_length=1, strict=False, description="where the target is clustered"
    )
    space_width: int = Field(64, ge=1, description="principal axes of a space")
    whitening: float = Field(0.5, ge=0, le=1, description="how far the axes' variances are made equal")
    neighbours: int = Field(10, ge=1, description="most neighbours that a sample is averaged with")
    diffusion_rounds: int = Field(3, ge=0)
    space_partitions: int = Field(20, ge=1, description="k-means partitions a space")
    transfer: Transfer = Field("guarded", description="what becomes of the provider's labels")
    trusted_agreement: float = Field(0.85, ge=0, le=1, description="from here on labels shape the spaces")
    least_agreement: float = Field(0.3, ge=0, le=1, description="from here on labels have a vote")
    fitting_epochs: int = Field(30, ge=1, description="of the model on the clustering found")

    # Watching and choosing
    evaluations_per_stage: int = Field(10, ge=1, description="whole-set predictions a stage")
    validation_fraction: float = Field(0.1, ge=0, lt=1, description="source samples kept to choose a model")
    prediction_batch_size: int = Field(64, ge=1, description="larger ones only cost memory on a CPU")


RECIPE_SETTINGS = frozenset(
    {
        *("domain_centring", "domain_transport", "proportion_relaxation", "source_starts"),
        *("spaces", "space_width", "whitening", "neighbours", "diffusion_rounds", "space_partitions"),
        *("transfer", "trusted_agreement", "least_agreement", "fitting_epochs"),
    }
)
"""Settings that nothing but the recipe "ucds" looks at."""


def default_tune(recipe: Recipe) -> Tune:
    """What a recipe trains where nobody says: training the encoder gains ours nothing (docs/recipe.md)."""
    return "head" if recipe == "ucds" else "full"


def read_config(path: Path | None, settings: Sequence[str] = (), *, recipe: Recipe = "pcd") -> Config:
    """Read settings from a TOML file, if any, and then from ``NAME=VALUE`` texts, which win.

    ``recipe`` is taken where neither names one.

    Values are written as in TOML; a bare word is a text.

    Raises:
        UserError: the file is missing, is not TOML, or a setting is bad.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot read the configuration {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{path} is not TOML: {error}") from None
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UserError(f"a setting is written NAME=VALUE, not {setting!r}")
        values[name.strip()] = _value(value.strip())
    values.setdefault("recipe", recipe)
    if values["recipe"] == "ucds":
        values.setdefault("tune", default_tune("ucds"))
    return Config.from_mapping(values)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _in_words(problem: Any) -> str:
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown setting '{name}'"
    return f"{name}: {problem['msg'][0].lower()}{problem['msg'][1:]} (got {problem['input']!r})"
