"""Tests of the settings: the paper's values, what is refused, and how they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ucds.choices import SPACES
from ucds.config import PCDSettings, default_tune, read_config
from ucds.errors import UserError


def test_defaults_are_the_papers() -> None:
    config = PCDSettings()
    assert config.bottleneck_width == 256
    assert config.epsilon == 0.01
    assert (config.source_proportion_momentum, config.target_proportion_momentum) == (0.9999, 0.99)
    assert (config.mixing_alpha, config.ensemble_momentum) == (0.3, 0.6)
    assert (config.learning_rate, config.new_layer_learning_rate) == (1e-3, 1e-2)
    assert (config.momentum, config.weight_decay, config.batch_size) == (0.9, 1e-3, 64)
    assert (config.decay_rate, config.decay_power) == (10, 0.75)
    assert {config.transport_weight, config.information_weight, config.mixing_weight} == {1}


def test_is_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        PCDSettings().epsilon = 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", float("nan")),
        ("learning_rate", float("inf")),
        ("learning_rate", -1e-3),
        ("learning_rate", "fast"),
        ("batch_size", 1),
        ("source_epochs", 0),
        ("source_epochs", 1.5),
        ("source_epochs", None),
        ("momentum", 1.0),
        ("label_smoothing", 1.1),
        ("validation_fraction", 1.0),
        ("target_proportion_momentum", -0.1),
        ("nesterov", "perhaps"),
        ("tune", "tail"),
        ("bottleneck_width", [256]),
    ],
)
def test_impossible_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"^bad configuration: {name}: ") as error:
        PCDSettings.from_mapping({name: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight_decay", 0),
        ("transport_weight", 0),
        ("label_smoothing", 1),
        ("ensemble_momentum", 0),
        ("momentum", 0),
        ("validation_fraction", 0),
        ("batch_size", 2),
    ],
)
def test_the_ends_of_ranges_are_accepted(name: str, value: float) -> None:
    assert getattr(PCDSettings.from_mapping({name: value}), name) == value


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(UserError, match=r"epsilon: .*\(got -1\); unknown setting 'epslion'"):
        PCDSettings.from_mapping({"epsilon": -1, "epslion": 0.1})


def test_every_setting_changes_the_hash() -> None:
    others: dict[str, Any] = {
        "tune": "head",
        "nesterov": False,
        "recipe": "ucds",
        "domain_centring": False,
        "domain_transport": False,
        "spaces": ("near",),
        "transfer": "own",
    }
    base = PCDSettings()
    hashes = {base.hash}
    for name, value in base.model_dump().items():
        other = others.get(name, value / 2 if isinstance(value, float) else None)
        hashes.add(PCDSettings(**{name: value + 1 if other is None else other}).hash)
    assert len(hashes) == 1 + len(PCDSettings.model_fields)
    assert all(len(text) == 12 and int(text, 16) >= 0 for text in hashes)


def test_the_hash_depends_on_values_only() -> None:
    assert (
        PCDSettings(epsilon=0.01).hash
        == PCDSettings().hash
        == PCDSettings(weight_decay=0.001, epsilon=1e-2).hash
    )
    assert PCDSettings(weight_decay=0).hash == PCDSettings(weight_decay=0.0).hash


def test_reads_a_file_and_single_settings_win(tmp_path: Path) -> None:
    path = tmp_path / "method.toml"
    path.write_text("epsilon = 0.05\nbatch_size = 32\ntune = 'head'\n")
    config = read_config(path, ["batch_size=16", "batch_size = 8", "nesterov=false"])
    assert config == PCDSettings(epsilon=0.05, batch_size=8, tune="head", nesterov=False)


def test_without_anything_it_is_the_default() -> None:
    assert read_config(None) == PCDSettings()


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("tune=head", "tune", "head"),
        ("tune='head'", "tune", "head"),
        ("epsilon=1e-2", "epsilon", 0.01),
        ("batch_size=64", "batch_size", 64),
        ("nesterov=true", "nesterov", True),
        (" epsilon = 0.5 ", "epsilon", 0.5),
    ],
)
def test_values_are_written_as_in_toml_or_as_bare_words(setting: str, name: str, value: Any) -> None:
    found = getattr(read_config(None, [setting]), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("setting", ["epsilon", "", "--resume"])
def test_a_setting_without_a_value_is_refused(setting: str) -> None:
    with pytest.raises(UserError, match="a setting is written NAME=VALUE, not "):
        read_config(None, [setting])


@pytest.mark.parametrize("setting", ["=3", "epsilon=", "hash=abc", "model_config={}"])
def test_odd_settings_are_refused(setting: str) -> None:
    with pytest.raises(UserError, match="bad configuration"):
        read_config(None, [setting])


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the configuration .*absent.toml: No such file"):
        read_config(tmp_path / "absent.toml")
    with pytest.raises(UserError, match="Is a directory"):
        read_config(tmp_path)
    for content in (b"epsilon 3", b"\xff\xfe"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(UserError, match="bad.toml is not TOML"):
            read_config(tmp_path / "bad.toml")


def test_each_recipe_has_its_own_way_of_training() -> None:
    assert (default_tune("ucds"), default_tune("pcd")) == ("head", "full")
    assert read_config(None, recipe="ucds") == PCDSettings(recipe="ucds", tune="head")
    assert read_config(None, recipe="pcd") == PCDSettings() == read_config(None)


@pytest.mark.parametrize(
    ("file", "settings", "recipe", "tune"),
    [
        ("", [], "ucds", "head"),
        ("recipe = 'pcd'", [], "pcd", "full"),
        ("recipe = 'pcd'", ["recipe=ucds"], "ucds", "head"),
        ("", ["recipe=pcd"], "pcd", "full"),
        ("tune = 'full'", [], "ucds", "full"),
        ("tune = 'full'", ["tune=head", "recipe=pcd"], "pcd", "head"),
    ],
)
def test_what_is_said_wins_over_the_recipe(
    tmp_path: Path, file: str, settings: list[str], recipe: str, tune: str
) -> None:
    (tmp_path / "m.toml").write_text(file)
    config = read_config(tmp_path / "m.toml", settings, recipe="ucds")
    assert (config.recipe, config.tune) == (recipe, tune)


def test_spaces_are_a_list_in_toml(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('spaces = ["near", "features"]\n')
    config = read_config(tmp_path / "m.toml")
    assert config.spaces == ("near", "features")
    assert config == read_config(None, ["spaces=['near', 'features']"])
    assert config.hash != read_config(None, ["spaces=['features', 'near']"]).hash
    assert PCDSettings().spaces == SPACES


@pytest.mark.parametrize(
    "setting",
    [
        "spaces=[]",
        "spaces=['far']",
        "spaces='near'",
        "recipe='other'",
        "transfer='maybe'",
        "whitening=1.5",
        "proportion_relaxation=0",
        "neighbours=0",
        "trusted_agreement=1.1",
        "fitting_epochs=0",
    ],
)
def test_bad_settings_of_the_recipe_are_refused_in_one_line(setting: str) -> None:
    with pytest.raises(UserError, match=f"^bad configuration: {setting.split('=')[0]}") as error:
        read_config(None, [setting], recipe="ucds")
    assert "\n" not in str(error.value)
