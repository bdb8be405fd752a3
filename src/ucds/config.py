"""The settings of each method, with the paper's values where the paper gives them.

The class of a method holds exactly the settings that this method uses. ``docs/paper.md`` lists the settings
that the paper does not give, with the reason for each default.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ucds.arguments import require_kinds
from ucds.choices import (
    METHODS,
    SPACES,
    GuardChoices,
    Method,
    OpinionChoices,
    Role,
    Space,
    Transfer,
    Tune,
    VoteChoices,
)
from ucds.errors import InputError, brief
from ucds.extras import require_extra
from ucds.files import digest_of


class Settings(BaseModel):
    """Immutable settings, given by name.

    Raises:
        InputError: a name is unknown, or a value is impossible; the one-line message lists all problems.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    earlier: ClassVar[Mapping[str, Any]] = {}
    """Value of a setting in records from before it existed, by name, where this is not the default."""

    if not TYPE_CHECKING:  # type checkers know the settings by name and kind

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                problems = [self._describe(problem) for problem in error.errors()]
                more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
                raise InputError(f"bad settings: {'; '.join(problems[:3])}{more}") from None

    @classmethod
    def _describe(cls, problem: Any) -> str:
        if not problem["loc"]:  # of several settings, which the message names
            return str(problem["ctx"]["error"])
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] != "extra_forbidden":
            return f"{name}: {problem['msg'][0].lower()}{problem['msg'][1:]} (got {brief(problem['input'])})"
        if name == "method":
            return "the method is not a setting: choose it with `method`"
        owners = [method for method, other in SETTINGS.items() if name in other.model_fields]
        if owners and cls in SETTINGS.values():
            return f"'{name}' is a setting of method '{owners[0]}', which this method does not use"
        close = difflib.get_close_matches(name, cls.model_fields, n=1)
        return f"unknown setting '{name}'" + (f", did you mean '{close[0]}'?" if close else "")

    @classmethod
    def essential(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Select the settings of a record that a record could not leave out without meaning something else.

        So records stay equal when a setting is added whose default changes nothing.
        """
        return _differing(values, cls(**cls.earlier).model_dump(mode="json"))

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that change with any setting."""
        return hash_settings(self.essential(self.model_dump(mode="json")))


def hash_settings(essential: Mapping[str, Any]) -> str:
    """Return a hash of the essential settings, as twelve hexadecimal digits."""
    return digest_of(json.dumps(essential, sort_keys=True).encode())[:12]


def _differing(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Select the entries that differ from the usual ones, also within nested mappings."""
    return {
        name: _differing(value, usual.get(name) or {}) if isinstance(value, dict) else value
        for name, value in values.items()
        if name not in usual or value != usual[name]
    }


def _setting(default: Any, **constraints: Any) -> Any:
    """Declare a setting so that type checkers see its default; `Field` alone shows it to a plugin only."""
    return Field(default, **constraints)


def _only(side: Role, default: Any, **constraints: Any) -> Any:
    """Declare a setting that only one side uses."""
    return _setting(default, json_schema_extra={"side": side}, **constraints)


WIDTH = "width of the features and prototypes, d_f"
MOST_SAMPLES = "largest number of samples of a domain that are clustered, evaluated, or seen in an epoch"


class ModelSettings(Settings):
    """Settings that every trained model has."""

    tune: Tune = _setting("full", description="'full' trains everything, 'head' only the new layers")
    bottleneck_width: int = _setting(256, ge=1, description=WIDTH)
    prediction_batch_size: int = _setting(
        64, ge=1, description="samples predicted at a time; on a CPU, larger values only cost memory"
    )


class PCDSettings(ModelSettings):
    """Settings of the paper's method and of its parts (PO, SO, TO, AO)."""

    # Optimiser, mixing and evaluations
    most_samples: int = _setting(50_000, ge=100, description=MOST_SAMPLES)
    batch_size: int = _setting(64, ge=2, description="samples per step, over all domains and processes")
    learning_rate: float = _setting(1e-3, gt=0, description="eta_0 of pre-trained layers")
    new_layer_learning_rate: float = _setting(1e-2, gt=0, description="eta_0 of bottleneck and prototypes")
    momentum: float = _setting(0.9, ge=0, lt=1, description="momentum of SGD")
    nesterov: bool = _setting(True, description="Nesterov's form of the momentum")
    weight_decay: float = _setting(1e-3, ge=0, description="weight decay of SGD")
    decay_rate: float = _setting(10.0, ge=0, description="a in eta = eta_0 (1 + a p)^-b")
    decay_power: float = _setting(0.75, ge=0, description="b in eta = eta_0 (1 + a p)^-b")
    mixing_weight: float = _setting(1.0, ge=0, description="weight of the CutMix (vectors: mix-up) loss")
    mixing_alpha: float = _setting(0.3, gt=0, description="concentration of the mixing ratio, alpha")
    evaluations_per_stage: int = _setting(10, ge=1, description="predictions of the whole set per stage")

    # Clustering loss (Eq. 1, 3, 4)
    transport_weight: float = _setting(1.0, ge=0, description="weight of the transport loss, Eq. 1")
    information_weight: float = _setting(1.0, ge=0, description="weight of the mutual information, Eq. 3")
    distillation_weight: float = _only(
        "target", 1.0, ge=0, description="weight of the distillation loss of stage 2"
    )
    epsilon: float = _setting(0.01, gt=0, description="entropic regularisation of the transport, epsilon")
    transport_tolerance: float = _setting(1e-3, gt=0, description="L1 error allowed in the plan's marginals")
    transport_max_iterations: int = _setting(
        100, ge=1, description="largest number of Newton iterations of a transport"
    )

    # Proportions (Eq. 2)
    source_proportion_momentum: float = _only("source", 0.9999, ge=0, le=1, description="beta_0 in stage 1")
    target_proportion_momentum: float = _only(
        "target", 0.99, ge=0, le=1, description="beta_0 in stages 2 and 3"
    )

    # Pseudo-labels of stage 2
    label_smoothing: float = _only(
        "target", 0.1, ge=0, le=1, description="weight of the uniform distribution in a label, gamma"
    )
    ensemble_momentum: float = _only("target", 0.6, ge=0, le=1, description="weight of past targets, tau")

    # Lengths
    source_epochs: int = _only("source", 100, ge=1, description="epochs of stage 1")
    clustering_epochs: int = _only("target", 30, ge=1, description="epochs of stage 2")
    refinement_epochs: int = _only("target", 30, ge=1, description="epochs of stage 3")
    validation_fraction: float = _only(
        "source", 0.1, ge=0, lt=1, description="share of the source samples set aside to choose the model"
    )


class ConsensusSettings(Settings):
    """Settings of the consensus method (``docs/consensus.md``), which trains the head only."""

    tune: ClassVar[Tune] = "head"

    most_samples: int = _setting(50_000, ge=100, description=MOST_SAMPLES)
    bottleneck_width: int = _setting(256, ge=1, description=WIDTH)
    whitening: float = _setting(
        0.5, ge=0, le=1, description="0 keeps the variances of the axes, 1 makes them equal"
    )
    starts: int | None = _setting(
        None, ge=1, description="k-means starts per space and number of clusters; by the sample size if unset"
    )

    # Source, with differential privacy (docs/privacy.md). The accounts are computed for these values of
    # epsilon: a smaller one needs more noise than any sum of images bears, and a larger one promises nothing.
    dp_epsilon: float | None = _only(
        "source", None, ge=1e-3, le=1e3, description="epsilon of differential privacy; no privacy if unset"
    )
    dp_delta: float | None = _only(
        "source", None, gt=0, lt=1, description="delta of the guarantee; 1e-5, or 1 / images if smaller"
    )

    # Target
    spaces: tuple[Space, ...] = _only(
        "target", SPACES, min_length=1, strict=False, description="spaces in which the target is clustered"
    )
    transfer: Transfer = _only(
        "target",
        "guarded",
        description="use of the labels: own, opinion or equal; guarded lets the guard choose",
    )

    # Figures that only a benchmark varies
    vote: VoteChoices = _setting(VoteChoices(), description="parameters of the vote")
    second_opinion: OpinionChoices = _setting(
        OpinionChoices(), description="parameters of the second opinion"
    )
    guard: GuardChoices = _only("target", GuardChoices(), description="parameters of the guard")
    earlier: ClassVar[Mapping[str, Any]] = {"second_opinion": OpinionChoices(draws=0)}

    @property
    def voting(self) -> VoteChoices:
        """Parameters of the vote, with the number of starts if one is set."""
        return self.vote.with_starts(self.starts) if self.starts else self.vote

    @model_validator(mode="after")
    def _privacy_is_whole(self) -> Self:
        if self.dp_epsilon is None and self.dp_delta is not None:
            raise ValueError("dp_delta: there is no differential privacy without dp_epsilon")
        return self


SETTINGS: Mapping[Method, type[PCDSettings] | type[ConsensusSettings]] = {
    "pcd": PCDSettings,
    "consensus": ConsensusSettings,
}
"""Settings class of each method."""

STAGE_2 = (
    "clustering_epochs",
    "distillation_weight",
    "label_smoothing",
    "ensemble_momentum",
    "mixing_weight",
    "mixing_alpha",
)
"""Settings of PCD that a target without labels does not read: it has the last stage alone."""

FIGURES = ("vote", "second_opinion", "guard")
"""Settings that benchmarks and Python may vary and commands may not: users cannot judge them."""

MethodSettings = PCDSettings | ConsensusSettings


def method_of(settings: Settings) -> Method:
    """Return the name of the method that settings belong to."""
    return next(method for method in METHODS if isinstance(settings, SETTINGS[method]))


def side_of(settings: type[Settings], name: str) -> Role | None:
    """Return the only side that uses a setting; ``None`` if both use it."""
    extra = settings.model_fields[name].json_schema_extra
    return extra.get("side") if isinstance(extra, dict) else None  # type: ignore[return-value]


def for_side(settings: Settings, side: Role) -> dict[str, Any]:
    """Select the settings that one side uses, as JSON types by name."""
    values = settings.model_dump(mode="json")
    return {name: value for name, value in values.items() if side_of(type(settings), name) in (None, side)}


def restore(method: Method, values: Mapping[str, Any]) -> MethodSettings:
    """Make settings from the values that :func:`for_side` returned."""
    return SETTINGS[method].model_validate_json(json.dumps(values))


def for_source(settings: MethodSettings) -> MethodSettings:
    """Return a copy in which settings that only the target uses have their defaults."""
    kind = type(settings)
    others = {n: f.default for n, f in kind.model_fields.items() if side_of(kind, n) == "target"}
    return settings.model_copy(update=others)


def read_settings(method: Method, side: Role, given: Sequence[str] = (), **named: Any) -> MethodSettings:
    """Read the settings of a method for one side from texts ``NAME=VALUE``.

    The value is written as in TOML, and a bare word is a text. The other arguments are those of
    :func:`choose_settings`.
    """
    own: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"a setting is written NAME=VALUE, not {brief(text)}")
        _add(own, name.strip(), _parse_value(value.strip()))
    return choose_settings(method, side, own, **named)


def choose_settings(
    method: Method | None,
    side: Role,
    given: MethodSettings | Mapping[str, Any] | None,
    *,
    labelled: bool = True,
    **named: Any,
) -> MethodSettings:
    """Take the settings of a method for one side as an object, by name, or not at all.

    A setting that a training does not read, with a provider's labels or without, is refused here.

    The method is that of the settings if ``None`` is named, and else ``"consensus"``. Settings that have an
    option of their own, such as ``tune``, are given as ``named``; those that are ``None`` are not given. The
    others may give them as well if the values agree.
    """
    require_kinds({"method": Method | None}, {"method": method})
    _require_trainer(named)
    named = {name: value for name, value in named.items() if value is not None}
    if not isinstance(given, PCDSettings | ConsensusSettings):
        settings = _make_settings(method or "consensus", side, {} if given is None else given, named)
    elif method not in (None, method_of(given)):
        raise InputError(
            f"`settings` are those of the method '{method_of(given)}', and `method` is {brief(method)}"
        )
    else:
        settings, values = given, {name: getattr(given, name) for name in named}
        for name, value in named.items():
            _add(values, name, value)
        if isinstance(settings, ConsensusSettings):  # an object of the paper's settings may serve both sides
            fields = ConsensusSettings.model_fields.items()
            changed = [name for name, field in fields if getattr(settings, name) != field.default]
            _refuse_other_side(ConsensusSettings, changed, side)
    refuse_unread(settings, side, labelled=labelled)
    return settings


def _make_settings(
    method: Method, side: Role, own: Mapping[str, Any], named: Mapping[str, Any]
) -> MethodSettings:
    if not isinstance(own, Mapping):
        raise InputError(f"settings are given by name, as a mapping, not as {type(own).__name__}")
    _require_trainer(own)
    values, kind = dict(own), SETTINGS[method]
    for name, value in named.items():
        if name in kind.model_fields or value != getattr(kind, name, None):  # else it is fixed
            _add(values, name, value)
    settings = kind(**values)
    for name in values:
        if name in FIGURES:
            raise InputError(f"bad settings: '{name}' is not a setting of a run: only a benchmark varies it")
    _refuse_other_side(kind, values, side)
    return settings


def _refuse_other_side(kind: type[Settings], names: Iterable[str], side: Role) -> None:
    for name in names:
        if side_of(kind, name) not in (None, side):
            raise InputError(f"bad settings: '{name}' is a setting of the other side, not of the {side}")


def _require_trainer(given: Mapping[str, Any]) -> None:
    """Name the extra that a whole network needs to be trained, before the method that would train it."""
    if given.get("tune") == "full":
        require_extra("torch", '`tune="full"`')


def refuse_unread(settings: MethodSettings, side: Role, *, labelled: bool = True) -> None:
    """Make sure that no setting was changed that a training of one side would not read."""
    for name, reason in _unread(settings, side, labelled):
        if getattr(settings, name) != type(settings).model_fields[name].default:
            raise InputError(f"bad settings: '{name}' has no effect {reason}: leave it out")


def _unread(settings: MethodSettings, side: Role, labelled: bool) -> Iterator[tuple[str, str]]:
    """Yield the settings that have no effect beside the others, each with the reason."""
    alone = side == "target" and not labelled
    if isinstance(settings, PCDSettings):
        if settings.tune == "head":
            yield "learning_rate", "where no pre-trained layer is trained"
        if settings.mixing_weight == 0:
            yield "mixing_alpha", "where mixing_weight is 0"
        if alone:
            yield from ((name, "without labels") for name in STAGE_2)
    elif alone:
        yield "transfer", "without labels"
    elif side == "source" and settings.dp_epsilon is not None:
        yield from ((name, "where dp_epsilon is set") for name in ("most_samples", "starts"))


def _add(values: dict[str, Any], name: str, value: Any) -> None:
    if values.get(name, value) != value:
        raise InputError(f"setting '{name}' is given twice: {brief(values[name])} and {brief(value)}")
    values[name] = value


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
