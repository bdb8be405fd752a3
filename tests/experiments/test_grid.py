"""Tests of a benchmark's file: what it may say, and which cells it stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from grid_kit import small, write_small

from ucds.errors import UserError
from ucds.experiments.grid import Cell, Encoder, read_benchmark

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))


def test_reads_a_benchmark(tmp_path: Path) -> None:
    found = small(tmp_path)
    assert found.grid.targets == {"": ("a",)}
    assert found.grid.seeds == (0, 1)
    assert found.settings["bottleneck_width"] == 8
    assert found.paper == {"po": {"a": 14.1}}


def test_the_papers_methods_and_five_seeds_are_the_default(tmp_path: Path) -> None:
    found = small(tmp_path, methods="", seeds="")
    assert found.grid.methods == ("kmeans", "po", "so", "to", "ao", "pcd")
    assert found.grid.seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"methods": 'methods = ["po", "dine"]'}, "unknown methods dine; known: kmeans, "),
        ({"targets": "targets = []"}, "grid: .*at least one domain"),
        ({"targets": 'targets = "a"'}, "grid.targets: "),
        ({"targets": ""}, "grid.targets: "),
        ({"seeds": "seed = [0]"}, "grid.seed: "),
        ({"seeds": "seeds = [-1]"}, "grid.seeds.0: "),
        ({"title": ""}, "title: "),
        ({"tune": 'tune = "tail"'}, "tune: "),
        ({"tune": "epochs = 3"}, "unknown setting 'epochs'"),
        ({"po": 'po = { a = "good" }'}, "paper.po.a"),
        ({"title": "title Small"}, "is not TOML"),
        ({"backbone": ""}, "nothing to run: give .grid. a backbone"),
    ],
)
def test_a_benchmark_with_mistakes_is_refused(tmp_path: Path, replaced: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        small(tmp_path, **replaced)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[[variants]]\nsettings = {}", "variants.0.name: "),
        (
            '[[variants]]\nname = "v"\nsettings = { x = 1 }',
            "variant 'v': bad configuration: unknown setting 'x'",
        ),
        ('[[variants]]\nname = "v"\n[[variants]]\nname = "v"', "several variants are named 'v'"),
        ('[[variants]]\nname = "v"\nmethods = ["dine"]', "unknown methods dine"),
        ('[[variants]]\nname = "v"\nstart = "labels"', "variants.0.start: "),
        (
            '[[variants]]\nname = "v"\nstart = "source weights"\ntarget_backbone = "resnet18"',
            "a target of resnet18 cannot start from the weights of a ucds/oriented_edges",
        ),
        ('[[sweeps]]\nsetting = "speed"\nvalues = [1]', "unknown setting 'speed'"),
        ('[[sweeps]]\nsetting = "epsilon"\nvalues = []', "sweeps.0.values: "),
        ("[dataset_settings.pacs]\nepsilon = 1", "the grid has no data set 'pacs'"),
        ("[baselines.dine]\nepochs = 1", "unknown baseline 'dine'; known: acids, deepcluster, iic"),
        ('[[figures]]\nkind = "pie"', "figures.0.kind: "),
        ('[[variants]]\nname = "v"\nweights = "file.pt"', "variants.0.weights: "),
        (
            '[[choices]]\nname = "c"\nmethod = "po"\nchooser = ""\noptions = ["v", "w"]',
            "choice 'c': no variant 'v' runs 'po'",
        ),
        ('[[choices]]\nname = "c"\nmethod = "po"\nchooser = ""\noptions = [""]', "choices.0.options: "),
        ('measures = ["beauty"]', "unknown measure 'beauty'"),
    ],
)
def test_variants_with_mistakes_are_refused(tmp_path: Path, more: str, words: str) -> None:
    # What belongs to the top of the file must come before its first table.
    path = write_small(tmp_path, more if more.startswith("[") else "")
    if not more.startswith("["):
        path.write_text(more + "\n" + path.read_text())
    with pytest.raises(UserError, match=words):
        read_benchmark(path)


def test_settings_of_a_baseline_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown setting 'beauty'"):
        small(tmp_path, "[baselines.iic]\nbeauty = 3", methods='methods = ["iic"]')


def test_a_missing_benchmark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the benchmark .*absent\.toml"):
        read_benchmark(tmp_path / "absent.toml")


def test_the_cells_are_every_seed_target_variant_and_method(tmp_path: Path) -> None:
    more = '[[variants]]\nname = "v"\nmethods = ["pcd"]\nsettings = { epsilon = 0.5 }\n'
    cells = list(small(tmp_path, more, targets='targets = ["a", "b"]').cells())
    assert len(cells) == 2 * 2 * 3
    assert [(c.seed, c.target, c.variant, c.method) for c in cells[:4]] == [
        (0, "a", "", "kmeans"),
        (0, "a", "", "po"),
        (0, "a", "v", "pcd"),
        (0, "b", "", "kmeans"),
    ]
    assert {c.condition.config.epsilon for c in cells if c.variant == "v"} == {0.5}
    assert {c.condition.config.epsilon for c in cells if not c.variant} == {0.01}


def only(cells: list[Cell]) -> Cell:
    (cell,) = cells
    return cell


def test_what_a_variant_names_wins_over_the_grid(tmp_path: Path) -> None:
    more = """
[[variants]]
name = "v"
methods = ["pcd"]
source_backbone = "resnet18"
weights = "none"
subset = "imbalanced"
pooled_source = true
"""
    cells = list(small(tmp_path, more, seeds="seeds = [0]").cells())
    found = only([cell for cell in cells if cell.variant]).condition
    assert found.source == Encoder("resnet18", random=True)
    assert found.target == Encoder("ucds/oriented_edges", random=True)
    assert (found.subset, found.pooled_source, found.start) == ("imbalanced", True, "pre-trained")
    base = next(cell for cell in cells if not cell.variant).condition
    assert (base.subset, base.pooled_source, base.source.random) == ("full", False, False)


def test_a_grid_without_a_backbone_has_its_variants_only(tmp_path: Path) -> None:
    more = '[[variants]]\nname = "v"\nbackbone = "resnet18"\n'
    found = small(tmp_path, more, backbone="")
    assert {cell.variant for cell in found.cells()} == {"v"}


def test_a_sweep_is_a_variant_for_each_value(tmp_path: Path) -> None:
    found = small(tmp_path, '[[sweeps]]\nsetting = "mixing_weight"\nvalues = [0.6, 5]\n')
    assert [variant.name for variant in found.all_variants] == [
        "",
        "mixing_weight = 0.6",
        "mixing_weight = 5",
    ]
    weights = {cell.variant: cell.condition.config.mixing_weight for cell in found.cells()}
    assert list(weights.values()) == [1.0, 0.6, 5.0]


def test_a_data_set_has_settings_of_its_own(tmp_path: Path) -> None:
    more = "[dataset_settings.two]\nsource_epochs = 7\n"
    found = small(tmp_path, more, targets='targets = { one = ["a"], two = ["a", "b"] }')
    epochs = {(c.dataset, c.target): c.condition.config.source_epochs for c in found.cells()}
    assert epochs == {("one", "a"): 1, ("two", "a"): 7, ("two", "b"): 7}
    assert found.only_dataset == ""


def test_the_name_of_the_only_data_set(tmp_path: Path) -> None:
    found = small(tmp_path, targets='dataset = "office31"\ntargets = ["a"]')
    assert found.grid.targets == {"office31": ("a",)}
    assert found.only_dataset == "office31"


def test_weights_of_an_encoder(tmp_path: Path) -> None:
    given = {"": "all.pt", "resnet18": "one.pt"}
    assert Encoder("resnet18").weights(given) == "one.pt"
    assert Encoder("resnet50").weights(given) == "all.pt"
    assert Encoder("resnet50").weights({}) == "default"
    assert Encoder("resnet18", random=True).weights(given) == "none"


def test_points_are_kept_of_the_cells_that_a_figure_shows(tmp_path: Path) -> None:
    more = (
        '[[variants]]\nname = "v"\n[[figures]]\nkind = "tsne"\nmethods = ["po"]\nseed = 1\n'
        '[[figures]]\nkind = "proportions"\n'
    )
    found = small(tmp_path, more)
    assert [(c.seed, c.variant, c.method) for c in found.cells() if found.is_drawn(c)] == [(1, "", "po")]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_of_the_project_can_be_read(path: Path) -> None:
    found = read_benchmark(path)
    assert list(found.cells())
    targets = {target for targets in found.grid.targets.values() for target in targets}
    for variant in found.all_variants:
        for method, figures in variant.paper.items():
            assert method in found.methods_of(variant)
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
