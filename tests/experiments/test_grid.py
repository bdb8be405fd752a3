"""Tests of a benchmark's file: what it may say, and which cells it stands for."""

from dataclasses import replace
from pathlib import Path

import pytest
from grid_kit import small

from ucds.config import ConsensusSettings, PCDSettings
from ucds.errors import UserError
from ucds.experiments.grid import read_benchmark
from ucds.training.options import EncoderOptions

pytestmark = pytest.mark.torch

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"methods": 'methods = ["po", "dine"]'}, "there is no method dine: name kmeans, "),
        ({"methods": 'methods = ["json:run"]'}, "method json:run cannot be imported: .*'run'"),
        ({"targets": "targets = []"}, "grid: .*at least one domain"),
        ({"targets": 'targets = "a"'}, "grid.targets: "),
        ({"seeds": "seed = [0]"}, "grid.seed: "),
        ({"seeds": "seeds = [-1]"}, "grid.seeds.0: "),
        ({"title": 'title = "Small"\nmeasures = ["beauty"]'}, "there is no measure 'beauty'"),
        ({"tune": "epochs = 3"}, "unknown setting 'epochs'"),
        ({"po": 'po = { a = "good" }'}, "paper.po.a"),
        ({"title": "title Small"}, "is not TOML"),
        ({"backbone": ""}, "nothing to run: give .grid. a backbone"),
    ],
)
def test_a_benchmark_with_mistakes_is_refused(tmp_path: Path, replaced: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        small(tmp_path, **replaced)


VARIANT = '[[variants]]\nname = "v"\n'


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[[variants]]\nsettings = {}", "variants.0.name: "),
        (VARIANT + "settings.pcd = { x = 1 }", "variant 'v': bad settings: unknown setting 'x'"),
        (VARIANT + VARIANT, "several variants are named 'v'"),
        (
            VARIANT + 'start = "source weights"\ntarget_backbone = "resnet18"',
            "a target of resnet18 cannot start from the weights of a ucds/oriented_edges",
        ),
        (
            VARIANT + 'methods = ["po"]\nsettings.iic = { repeats = 3 }',
            "variant 'v': settings of 'iic' are given, but no method of that family runs",
        ),
        (
            VARIANT + 'methods = ["consensus"]\nsettings.consensus = { epsilon = 3 }',
            "variant 'v': bad settings: 'epsilon' is a setting of method 'pcd'",
        ),
        ('[[sweeps]]\nsetting = "speed"\nvalues = [1]', "unknown setting 'speed'"),
        ('[[sweeps]]\nsetting = "epsilon"\nvalues = []', "sweeps.0.values: "),
        ("[dataset_settings.pacs.pcd]\nepsilon = 1", "the grid has no data set 'pacs'"),
        ("[settings.iic]\nrepeat = 3", "unknown setting 'repeat', did you mean 'repeats'"),
        ("[settings.iic]\nrepeats = 0", "bad settings: repeats: "),
        ("[settings.acids]\nsub_heads = 3", "settings of 'acids' are given, but no method of that family"),
        ("[settings.dine]\nepochs = 3", "settings of 'dine' are given"),
    ],
)
def test_variants_and_settings_with_mistakes_are_refused(tmp_path: Path, more: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        small(tmp_path, more, methods=["iic", "po"])
    assert "\n" not in str(caught.value)


def test_settings_reach_the_methods_of_their_family_alone(tmp_path: Path) -> None:
    more = "[settings.consensus]\nbottleneck_width = 16\nstarts = 3\n[settings.iic]\nepochs = 4\n"
    cells = small(tmp_path, more, methods=["kmeans", "iic", "po", "consensus"]).cells()
    found = {cell.method: cell.settings.model_dump() if cell.settings else {} for cell in cells}
    widths = {name: values.get("bottleneck_width") for name, values in found.items()}
    assert widths == {"kmeans": None, "iic": 256, "po": 8, "consensus": 16}
    assert found["kmeans"] == {}
    assert (found["consensus"]["starts"], found["iic"]["epochs"]) == (3, 4)
    assert not found["iic"].keys() & {"source_epochs", "starts"}


def test_a_variant_and_a_data_set_have_sections_of_their_own(tmp_path: Path) -> None:
    more = """
[settings.consensus]
starts = 3
[dataset_settings.two.consensus]
starts = 4
whitening = 0.25
[[variants]]
name = "v"
settings.consensus = { starts = 5 }
"""
    targets = 'targets = { one = ["a"], two = ["a"] }'
    found = small(tmp_path, more, targets=targets, methods=["pcd", "consensus"], seeds=[0])
    seen = {
        (cell.dataset, cell.variant): (cell.settings.starts, cell.settings.whitening)
        for cell in found.cells()
        if isinstance(cell.settings, ConsensusSettings)
    }
    assert seen == {
        ("one", ""): (3, 0.5),
        ("two", ""): (4, 0.25),
        ("one", "v"): (5, 0.5),
        ("two", "v"): (5, 0.25),
    }


def test_a_setting_may_belong_to_the_methods_of_one_variant_alone(tmp_path: Path) -> None:
    """The grid's own methods do not look at it, and are not refused for that."""
    more = "[settings.consensus]\nstarts = 3\n" + VARIANT + 'methods = ["consensus"]\n'
    cells = list(small(tmp_path, more).cells())
    assert {type(given) for c in cells if not c.variant for given in c.condition.settings} == {PCDSettings}
    assert {type(given) for c in cells if c.variant for given in c.condition.settings} == {ConsensusSettings}


def test_the_cells_are_every_seed_target_variant_and_method(tmp_path: Path) -> None:
    more = VARIANT + 'methods = ["pcd"]\nsettings.pcd = { epsilon = 0.5 }\n'
    cells = list(small(tmp_path, more, targets='dataset = "office31"\ntargets = ["a", "b"]').cells())
    assert {cell.dataset for cell in cells} == {"office31"}
    assert len(cells) == 2 * 2 * 3
    assert [(c.seed, c.target, c.variant, c.method) for c in cells[:4]] == [
        (0, "a", "", "kmeans"),
        (0, "a", "", "po"),
        (0, "a", "v", "pcd"),
        (0, "b", "", "kmeans"),
    ]
    epsilon = {(c.variant, c.settings.epsilon) for c in cells if isinstance(c.settings, PCDSettings)}
    assert epsilon == {("v", 0.5), ("", 0.01)}


def test_what_a_variant_names_wins_over_the_grid(tmp_path: Path) -> None:
    more = 'methods = ["pcd"]\nsource_backbone = "resnet18"\nsubset = "imbalanced"\npooled_source = true\n'
    *grid, cell = small(tmp_path, VARIANT + more, seeds=[0]).cells()
    found, base = cell.condition, grid[0].condition
    assert found.source == EncoderOptions("resnet18")
    assert found.target == EncoderOptions("ucds/oriented_edges")
    assert (found.subset, found.pooled_source, found.start) == ("imbalanced", True, "pre-trained")
    assert (base.subset, base.pooled_source) == ("full", False)
    alone = small(tmp_path, VARIANT + 'backbone = "resnet18"\n', backbone="")
    assert {cell.variant for cell in alone.cells()} == {"v"}
    with pytest.raises(UserError, match="variant 'v': no backbone is named"):
        small(tmp_path, VARIANT + 'source_backbone = "resnet18"\n', backbone="")


def test_a_sweep_is_a_variant_for_each_value(tmp_path: Path) -> None:
    found = small(tmp_path, '[[sweeps]]\nsetting = "mixing_weight"\nvalues = [0.6, 5]\n')
    own = {c.variant: c.settings.mixing_weight for c in found.cells() if isinstance(c.settings, PCDSettings)}
    assert list(own.items()) == [("", 1.0), ("mixing_weight = 0.6", 0.6), ("mixing_weight = 5", 5.0)]


def test_a_grid_sweeps_the_figures_of_the_consensus_method(tmp_path: Path) -> None:
    """The vote, the second opinion and the guard, each figure beside the usual others."""
    swept = {"vote.halves": 3.0, "second_opinion.draws": 0.0, "guard.least_trust": 0.1}
    more = "".join(
        f'[[sweeps]]\nfamily = "consensus"\nsetting = "{name}"\nvalues = [{value}]\n'
        for name, value in swept.items()
    )
    cells = small(tmp_path, more, methods=["po", "consensus"], seeds=[0]).cells()
    found = {cell.variant: cell for cell in cells if cell.method == "consensus"}
    usual = found[""].settings
    assert isinstance(usual, ConsensusSettings)
    for name, value in swept.items():
        settings, (outer, inner) = found[f"{name} = {value:g}"].settings, name.split(".")
        changed = replace(getattr(usual, outer), **{inner: value})
        assert settings == usual.model_copy(update={outer: changed})
    bad = '[[sweeps]]\nfamily = "consensus"\nsetting = "guard.least"\nvalues = [1]\n'
    with pytest.raises(UserError, match=r"guard\.least: unexpected"):
        small(tmp_path, bad, methods=["po", "consensus"])


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_gives_figures_of_the_paper_for_what_it_runs(path: Path) -> None:
    found = read_benchmark(path)
    assert list(found.cells())
    targets = {target for targets in found.grid.targets.values() for target in targets}
    for variant in found.all_variants:
        assert variant.paper.keys() <= set(found.methods_of(variant))
        for figures in variant.paper.values():
            assert figures.keys() <= (set(found.measures) or targets)


PRINTED_MEANS = {
    # The paper prints 63.4 for PACS, which its own four figures do not make.
    ("standard-resnet18", "", "pcd"): {"office31": 54.9, "officehome": 29.3, "pacs": 63.1},
    ("standard-resnet18", "", "so"): {"office31": 41.4, "officehome": 21.0, "pacs": 30.0},
    ("standard-resnet18", "", "to"): {"office31": 43.3, "officehome": 22.1, "pacs": 62.6},
    ("standard-resnet18", "", "ao"): {"office31": 52.3, "officehome": 26.6, "pacs": 60.2},
    ("standard-resnet18", "", "po"): {"office31": 16.8, "officehome": 11.0, "pacs": 23.8},
    ("standard-resnet18", "", "iic-original"): {"office31": 34.4, "officehome": 16.4, "pacs": 49.2},
    ("standard-resnet18", "", "acids-original"): {"office31": 35.7, "officehome": 17.0, "pacs": 50.5},
    ("standard-resnet18", "", "deepcluster-original"): {"office31": 19.1, "officehome": 12.6, "pacs": 25.4},
    ("standard-resnet18", "", "acids"): {"pacs": 59.1},
    ("standard-resnet50-ssl", "", "pcd"): {"office31": 45.6, "officehome": 25.1, "pacs": 57.5},
    ("standard-resnet50-ssl", "", "so"): {"office31": 24.3, "officehome": 15.7, "pacs": 32.6},
    ("standard-resnet50-ssl", "", "ao"): {"office31": 37.6, "officehome": 22.0, "pacs": 54.5},
    ("imbalanced", "", "pcd"): {"office31": 43.7, "officehome": 28.7, "pacs": 52.4},
    ("imbalanced", "", "so"): {"office31": 29.9, "officehome": 24.1, "pacs": 45.2},
    ("imbalanced", "", "to"): {"office31": 39.5, "officehome": 21.2, "pacs": 50.0},
    ("model-transfer", "to ResNet-50 (SwAV)", "pcd"): {"office31": 48.4},
    ("model-transfer", "to ResNet-50", "pcd"): {"office31": 54.8},
    ("model-transfer", "to ResNet-18", "pcd"): {"office31": 51.6},
    ("model-transfer", "to ResNet-18", "so"): {"office31": 42.3},
    ("initialisation", "supervised pre-training", "pcd"): {"pacs": 66.0},
    ("initialisation", "self-supervised pre-training", "pcd"): {"pacs": 57.5},
}
"""The averages that the paper prints beside its figures: a misprint of ours would show in them."""


@pytest.mark.parametrize("key", PRINTED_MEANS, ids=" ".join)
def test_the_papers_figures_have_the_averages_that_it_prints(key: tuple[str, str, str]) -> None:
    name, variant, method = key
    found = read_benchmark(next(path for path in CONFIGS if path.stem == name))
    figures = next(v for v in found.all_variants if v.name == variant).paper[method]
    for dataset, mean in PRINTED_MEANS[key].items():
        values = [figures[target] for target in found.grid.targets[dataset]]
        centres = [value[0] if isinstance(value, tuple) else value for value in values]
        assert sum(centres) / len(centres) == pytest.approx(mean, abs=0.11)
