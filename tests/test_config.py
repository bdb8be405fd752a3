"""Tests of the settings: the paper's values, what is refused, and how they are written."""

from typing import Any

import pytest
from pydantic import ValidationError

from ucds.choices import METHODS, GuardChoices, Method, OpinionChoices, Role, VoteChoices
from ucds.config import (
    SETTINGS,
    ConsensusSettings,
    MethodSettings,
    PCDSettings,
    choose_settings,
    for_side,
    for_source,
    hash_settings,
    method_of,
    read_settings,
)
from ucds.errors import InputError


def given(*texts: str, method: Method = "pcd", side: Role = "target") -> MethodSettings:
    return read_settings(method, side, texts)


def test_defaults_are_the_papers_and_cannot_be_changed() -> None:
    settings = PCDSettings()
    assert settings.bottleneck_width == 256
    assert settings.epsilon == 0.01
    assert (settings.source_proportion_momentum, settings.target_proportion_momentum) == (0.9999, 0.99)
    assert (settings.mixing_alpha, settings.ensemble_momentum) == (0.3, 0.6)
    assert (settings.learning_rate, settings.new_layer_learning_rate) == (1e-3, 1e-2)
    assert (settings.momentum, settings.weight_decay, settings.batch_size) == (0.9, 1e-3, 64)
    assert (settings.decay_rate, settings.decay_power) == (10, 0.75)
    assert (settings.label_smoothing, settings.validation_fraction) == (0.1, 0.1)
    assert (settings.source_epochs, settings.clustering_epochs, settings.refinement_epochs) == (100, 30, 30)
    weights = (settings.transport_weight, settings.information_weight, settings.distillation_weight)
    assert {*weights, settings.mixing_weight} == {1}
    with pytest.raises(ValidationError, match="frozen"):
        settings.epsilon = 1.0  # type: ignore[misc]


def test_the_figures_of_the_consensus_are_those_that_were_measured() -> None:
    """Each of them changes the results of all: after a change, measure again and write its digest here."""
    assert hash_settings(ConsensusSettings().model_dump(mode="json")) == "2ddfa33cd027"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", float("nan")),
        ("learning_rate", float("inf")),
        ("learning_rate", -1e-3),
        ("batch_size", 1),
        ("batch_size", "64"),
        ("source_epochs", 0),
        ("source_epochs", 1.5),
        ("momentum", 1.0),
        ("label_smoothing", 1.1),
        ("validation_fraction", 1.0),
        ("target_proportion_momentum", -0.1),
        ("tune", "tail"),
        ("spaces", []),
        ("spaces", ["far"]),
        ("transfer", "consensus"),
        ("whitening", 1.5),
        ("starts", 0),
        ("dp_epsilon", 100000),
        ("dp_epsilon", 0.0001),
    ],
)
def test_impossible_values_are_refused_by_name(name: str, value: Any) -> None:
    kind = PCDSettings if name in PCDSettings.model_fields else ConsensusSettings
    with pytest.raises(InputError, match=rf"^bad settings: {name}(\.0)?: ") as error:
        kind(**{name: value})
    assert "\n" not in str(error.value)


def test_the_ends_of_ranges_are_accepted() -> None:
    ends = {"weight_decay": 0, "momentum": 0, "ensemble_momentum": 0, "batch_size": 2}
    ends |= {"transport_weight": 0, "label_smoothing": 1, "validation_fraction": 0, "most_samples": 100}
    ends |= dict.fromkeys(("source_epochs", "clustering_epochs", "refinement_epochs", "bottleneck_width"), 1)
    settings = PCDSettings(**ends).model_dump()
    assert settings | ends == settings
    ends = {"most_samples": 100, "whitening": 1, "starts": 1, "dp_epsilon": 1e-3, "bottleneck_width": 1}
    settings = ConsensusSettings(**ends).model_dump()
    assert settings | ends == settings


def test_every_problem_is_told_at_once_and_the_nearest_name_is_suggested() -> None:
    message = r"epsilon: .*\(got -1\); unknown setting 'epslion', did you mean 'epsilon'\?$"
    with pytest.raises(InputError, match=message):
        PCDSettings(**{"epsilon": -1, "epslion": 0.1})
    with pytest.raises(InputError, match="^bad settings: unknown setting 'xyz'$"):  # which resembles none
        PCDSettings(**{"xyz": 1})


OF_PCD = "is a setting of method 'pcd', which this method does not use$"
FIGURE = "is not a setting of a run: only a benchmark varies it"


@pytest.mark.parametrize(
    ("method", "side", "texts", "words"),
    [
        ("pcd", "source", "spaces=1", "is a setting of method 'consensus', which this method does not use$"),
        ("consensus", "source", "epsilon=1", OF_PCD),
        ("consensus", "target", "batch_size=1", OF_PCD),
        ("pcd", "target", "method=pcd", "^bad settings: the method is not a setting: choose it with"),
        ("consensus", "target", "vote={halves=1}", f"'vote' {FIGURE}"),
        ("consensus", "target", "second_opinion={draws=1}", f"'second_opinion' {FIGURE}"),
        ("consensus", "target", "guard={undivided=1}", f"'guard' {FIGURE}"),
        ("consensus", "source", "dp_delta=1e-6", "dp_delta: there is no differential privacy without"),
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused(
    method: Method, side: Role, texts: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        given(*texts.split(), method=method, side=side)


@pytest.mark.parametrize(
    ("method", "side", "text", "name"),
    [
        ("pcd", "source", "label_smoothing=0.2", "label_smoothing"),
        ("pcd", "target", "source_epochs=3", "source_epochs"),
        ("consensus", "source", "spaces=['features']", "spaces"),
        ("consensus", "target", "dp_epsilon=1.0", "dp_epsilon"),
    ],
)
def test_a_setting_of_the_other_side_is_refused(method: Method, side: Role, text: str, name: str) -> None:
    message = f"^bad settings: '{name}' is a setting of the other side, not of the {side}$"
    with pytest.raises(InputError, match=message):
        given(text, method=method, side=side)
    other: Role = "target" if side == "source" else "source"
    if method == "consensus":  # settings of the paper's method may be shared by both sides
        with pytest.raises(InputError, match=message):
            choose_settings(None, side, given(text, method=method, side=other))
    assert getattr(given(text, method=method, side=other), name) != getattr(SETTINGS[method](), name)


def test_one_setting_with_two_values_is_refused() -> None:
    for texts in (("batch_size=8", "batch_size=16"), ("tune=head", "tune=full")):
        with pytest.raises(InputError, match="is given twice: "):
            given(*texts, side="source")
    alike = ["tune=head", "batch_size=8", "batch_size = 8"]
    assert read_settings("pcd", "source", alike, tune="head") == PCDSettings(tune="head", batch_size=8)


def test_every_setting_changes_the_hash() -> None:
    others: dict[str, Any] = {
        "nesterov": False,
        "starts": 5,
        "dp_epsilon": 2.0,
        "dp_delta": 1e-6,
        "spaces": ("features",),
        "transfer": "own",
        "vote": VoteChoices(halves=3),
        "second_opinion": OpinionChoices(draws=3),
        "guard": GuardChoices(undivided=0.8),
    }
    for kind in (PCDSettings, ConsensusSettings):
        base = kind()
        hashes = {base.hash}
        for name, value in base.model_dump().items():
            other = {**others, "tune": "head"}.get(name, value / 2 if isinstance(value, float) else None)
            beside = {"dp_epsilon": 2.0} if name.startswith("dp_") else {}
            hashes.add(kind(**beside | {name: value + 1 if other is None else other}).hash)
        assert len(hashes) == 1 + len(kind.model_fields)
        assert all(len(text) == 12 and int(text, 16) >= 0 for text in hashes)


def test_the_hash_depends_on_values_only() -> None:
    assert PCDSettings(weight_decay=0.001, epsilon=1e-2).hash == PCDSettings().hash
    assert PCDSettings(weight_decay=0).hash == PCDSettings(weight_decay=0.0).hash
    changed = ConsensusSettings(vote=VoteChoices(halves=3))  # others may be added, as long as they do nothing
    assert changed.essential(changed.model_dump(mode="json"))["vote"] == {"halves": 3}


def test_the_fewer_the_samples_the_more_starts_unless_their_number_is_set() -> None:
    vote = ConsensusSettings().voting
    assert [vote.starts(samples) for samples in (10, 3000, 10**6)] == [20, 5, 4]
    assert [ConsensusSettings(starts=7).voting.starts(samples) for samples in (10, 10**6)] == [7, 7]


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("tune=head", "tune", "head"),
        ("tune='head'", "tune", "head"),
        ("epsilon=1e-2", "epsilon", 0.01),
        ("batch_size=64", "batch_size", 64),
        ("nesterov=true", "nesterov", True),
        (" epsilon = 0.5 ", "epsilon", 0.5),
        ("spaces=['principal', 'features']", "spaces", ("principal", "features")),
    ],
)
def test_values_are_written_as_in_toml_or_as_bare_words(setting: str, name: str, value: Any) -> None:
    found = getattr(given(setting, method="consensus" if name == "spaces" else "pcd"), name)
    assert found == value
    assert type(found) is type(value)


ODD_VALUES = ["=3", "epsilon=", "epsilon=" + "[" * 5000, "hash=abc", "model_config={}"]


@pytest.mark.parametrize("setting", ["epsilon", "", "--resume", *ODD_VALUES])
def test_odd_settings_are_refused(setting: str) -> None:
    words = "bad settings" if setting in ODD_VALUES else "a setting is written NAME=VALUE, not "
    with pytest.raises(InputError, match=words):
        given(setting)


UNREAD: list[tuple[MethodSettings, Role, str]] = [
    (ConsensusSettings(dp_epsilon=1.0, starts=3), "source", "'starts' has no effect where dp_epsilon is set"),
    (ConsensusSettings(dp_epsilon=1.0, most_samples=500), "source", "'most_samples' has no effect where dp"),
    (ConsensusSettings(transfer="equal"), "target", "'transfer' has no effect without labels"),
    (PCDSettings(tune="head", learning_rate=0.1), "source", "'learning_rate' has no effect where no pre-tra"),
    (PCDSettings(tune="head", learning_rate=0.1), "target", "'learning_rate' has no effect where no pre-tra"),
    (PCDSettings(mixing_weight=0.0, mixing_alpha=0.5), "source", "'mixing_alpha' has no effect where mixing"),
    (PCDSettings(clustering_epochs=2), "target", "'clustering_epochs' has no effect without labels"),
    (PCDSettings(distillation_weight=0.5), "target", "'distillation_weight' has no effect without labels"),
    (PCDSettings(label_smoothing=0.0), "target", "'label_smoothing' has no effect without labels"),
    (PCDSettings(ensemble_momentum=0.0), "target", "'ensemble_momentum' has no effect without labels"),
    (PCDSettings(mixing_alpha=0.5), "target", "'mixing_alpha' has no effect without labels"),
]


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(("settings", "side", "message"), UNREAD)
def test_a_setting_that_nothing_reads_is_refused(
    settings: MethodSettings, side: Role, message: str, by_name: bool
) -> None:
    changed = settings.model_dump(exclude_defaults=True)
    given, labelled = changed if by_name else settings, side == "source"
    with pytest.raises(InputError, match=f"^bad settings: {message}.*: leave it out$"):
        choose_settings(method_of(settings), side, given, labelled=labelled)


def test_a_default_that_nothing_reads_and_what_is_read_beside_a_refused_one_are_taken() -> None:
    assert choose_settings("pcd", "target", {"label_smoothing": 0.1}, labelled=False) == PCDSettings()
    assert choose_settings("consensus", "target", {"transfer": "guarded"}, labelled=False).starts is None
    read = {"tune": "head", "new_layer_learning_rate": 0.1, "label_smoothing": 0.2}
    assert choose_settings("pcd", "target", read) == PCDSettings(**read)
    assert given("learning_rate=0.1") == PCDSettings(learning_rate=0.1)
    private = {"dp_delta": 1e-6, "dp_epsilon": 2.0}
    assert choose_settings(None, "source", private) == ConsensusSettings(**private)
    fewer = {"starts": 3, "most_samples": 500}  # which no source with differential privacy reads
    assert choose_settings(None, "source", fewer) == ConsensusSettings(**fewer)


@pytest.mark.parametrize("method", METHODS)
def test_the_schema_of_settings_tells_default_side_and_meaning(method: Method) -> None:
    listed = SETTINGS[method].model_json_schema()["properties"]
    assert list(listed) == list(SETTINGS[method].model_fields)
    assert method_of(SETTINGS[method]()) == method
    assert all(entry["description"] for entry in listed.values())
    assert {n: entry["default"] for n, entry in listed.items()} == SETTINGS[method]().model_dump(mode="json")
    own = {"pcd": "source_epochs", "consensus": "dp_epsilon"}[method]
    assert (listed[own]["side"], "side" in listed["most_samples"]) == ("source", False)


def test_a_side_sees_its_own_settings_and_the_common_ones() -> None:
    source, target = (for_side(PCDSettings(), side) for side in ("source", "target"))
    assert source.keys() | target.keys() == PCDSettings.model_fields.keys()
    assert source.keys() & target.keys() >= {"tune", "most_samples", "learning_rate", "epsilon"}
    assert "source_epochs" not in target
    assert "label_smoothing" not in source


def test_sources_alike_have_equal_settings_whatever_the_target_does() -> None:
    pcd, consensus = PCDSettings(source_epochs=7, epsilon=0.02), ConsensusSettings(dp_epsilon=9.0)
    for kept, others in (
        (pcd, {"label_smoothing": 0.3, "clustering_epochs": 2}),
        (consensus, {"spaces": ("features",), "transfer": "own"}),
    ):
        changed = kept.model_copy(update=others)
        assert for_source(changed) == for_source(kept) == kept
        assert for_source(changed).hash == kept.hash


def test_the_method_is_that_of_its_settings() -> None:
    for side in ("source", "target"):
        assert choose_settings(None, side, None) == read_settings("consensus", side, tune="head")
        assert choose_settings(None, side, None) == ConsensusSettings()
        assert choose_settings("pcd", side, None) == PCDSettings()
    assert (PCDSettings().tune, ConsensusSettings().tune) == ("full", "head")
    assert choose_settings(None, "source", PCDSettings(batch_size=8)) == PCDSettings(batch_size=8)
    with pytest.raises(InputError, match="`settings` are those of the method 'pcd', and `method` is 'cons"):
        choose_settings("consensus", "source", PCDSettings())
    with pytest.raises(InputError, match="setting 'tune' is given twice: 'full' and 'head'"):
        choose_settings("pcd", "source", PCDSettings(), tune="head")
    with pytest.raises(InputError, match="as a mapping, not as list"):
        choose_settings("pcd", "source", ["batch_size=8"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="^`method` must be one of .*, not 'kmeans'$"):
        choose_settings("kmeans", "source", None)  # type: ignore[arg-type]
