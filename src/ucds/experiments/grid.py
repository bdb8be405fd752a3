"""Reads a benchmark from its TOML file: the grid of data sets, targets, seeds and methods, and its variants.

A cell is one run: a method on a target with a seed, under a condition (settings, encoders, subset).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ucds.config import Settings
from ucds.errors import InputError, UserError, brief, first_problem
from ucds.experiments.methods import FAMILIES, PAPER_METHODS, method_named
from ucds.experiments.pipeline import Start
from ucds.experiments.scoring import COLUMNS
from ucds.files import read_toml
from ucds.training.options import EncoderOptions

Subset = Literal["full", "imbalanced", "small", "long-tail"]
Published = float | tuple[float, float]
"""A number in the paper: a mean, or a mean and a standard deviation."""
FamilySettings = dict[str, dict[str, Any]]
"""Settings by family of methods, then by name."""
PublishedRows = dict[str, dict[str, Published]]
"""Numbers in the paper by method, then by target (or by measure, in a table of costs)."""


class _Table(BaseModel):
    """A table of the file: unknown names in it are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Grid(_Table):
    """The cells of a benchmark: every target with every seed and every method.

    In the file, ``targets`` is a list of domains of the one data set, or a table of such lists by data set.
    All other domains of a data set are its sources.
    """

    dataset: str = Field("", description="name, so that `data` may hold several data sets")
    targets: dict[str, tuple[str, ...]] = Field(description="target domains by data set")
    methods: tuple[str, ...] = PAPER_METHODS
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = (0, 1, 2, 3, 4)
    subset: Subset = "full"
    backbone: str | None = Field(None, description="encoder of both sides; without it, only variants run")
    image_size: int | None = Field(
        None, ge=16, description="side of the square crop in pixels; the encoder's own if left out"
    )

    @model_validator(mode="before")
    @classmethod
    def _name_the_data_set(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("targets"), list):
            return values | {"targets": {values.get("dataset", ""): values["targets"]}}
        return values

    @model_validator(mode="after")
    def _has_targets(self) -> Grid:
        if not self.targets or not all(self.targets.values()):
            raise ValueError("targets must name at least one domain of each data set")
        return self


class Variant(_Table):
    """A way to run methods; entries of the variant replace those of the grid.

    The unchanged grid is the variant with the empty name, which no file can define.
    """

    name: str = Field(min_length=1)
    methods: tuple[str, ...] | None = Field(None, description="names of methods; the grid's if left out")
    settings: FamilySettings = Field(default_factory=dict)
    pooled_source: bool = Field(False, description="all source domains as one, D = 1")
    source_clusters: int | None = Field(
        None, ge=2, description="the provider's K if it differs; for the consensus method"
    )
    start: Start = Field("pre-trained", description="start of the target's model")
    backbone: str | None = None
    source_backbone: str | None = None
    target_backbone: str | None = None
    subset: Subset | None = Field(None, description="the grid's if left out")
    paper: PublishedRows = Field(default_factory=dict)


class Sweep(_Table):
    """One variant for each value of a setting ("epsilon"), or of an entry of one ("guard.least_trust")."""

    family: str = Field("pcd", description="name of the section of settings")
    setting: str
    values: tuple[float, ...] = Field(min_length=1)

    def name_of(self, value: float) -> str:
        """Return the name of the variant with this value."""
        return f"{self.setting} = {value:g}"

    def settings_of(self, value: float) -> FamilySettings:
        """Return the settings of the variant with this value."""
        setting, _, figure = self.setting.partition(".")
        return {self.family: {setting: {figure: value} if figure else value}}


class Figure(_Table):
    """A figure to draw from records of PCD; features in the plane are also drawn for target training only."""

    kind: Literal["proportions", "sensitivity", "tsne"]
    target: str = Field("", description="target domain; the first of the grid if left out")


@dataclass(frozen=True)
class Condition:
    """Settings, encoders and samples of a cell: everything except data set, target, seed and method."""

    settings: tuple[Settings, ...]  # one entry for each settings class
    source: EncoderOptions
    target: EncoderOptions
    pooled_source: bool = False  # whether all source domains count as one
    start: Start = "pre-trained"
    subset: Subset = "full"
    source_clusters: int | None = None  # the number of classes if `None`


@dataclass(frozen=True)
class Cell:
    """One run: a method on a task with a seed, under a condition."""

    dataset: str
    target: str
    seed: int
    variant: str
    method: str
    condition: Condition

    @property
    def settings(self) -> Settings | None:
        """Settings of the cell's method; ``None`` if it has none."""
        kind = method_named(self.method).settings
        return next((given for given in self.condition.settings if type(given) is kind), None)

    @property
    def row(self) -> str:
        """Method and variant as a short text."""
        return f"{self.method} [{self.variant}]" if self.variant else self.method


class Benchmark(_Table):
    """One published table or figure, as read from a TOML file in ``configs/``."""

    title: str
    grid: Grid
    settings: FamilySettings = Field(default_factory=dict)
    dataset_settings: dict[str, FamilySettings] = Field(default_factory=dict, description="by data set")
    variants: tuple[Variant, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    figures: tuple[Figure, ...] = ()
    reference: str = Field(
        "", description="title of the row that others are compared with; PCD or the first if left out"
    )
    measures: tuple[str, ...] = Field((), description="columns of the table; accuracy by target if left out")
    note: str = Field("", description="paragraph below the title of the page")
    paper: PublishedRows = Field(default_factory=dict, description="percent, by method and target")

    @property
    def all_variants(self) -> tuple[Variant, ...]:
        """The unchanged grid, if it has a backbone, then variants and sweeps."""
        base = Variant.model_construct(name="", paper=self.paper)
        swept = tuple(
            Variant(name=sweep.name_of(value), settings=sweep.settings_of(value))
            for sweep in self.sweeps
            for value in sweep.values
        )
        return (*([base] if self.grid.backbone else []), *self.variants, *swept)

    def methods_of(self, variant: Variant) -> tuple[str, ...]:
        """Return the names of the methods that a variant runs."""
        return self.grid.methods if variant.methods is None else variant.methods

    def condition(self, variant: Variant, dataset: str) -> Condition:
        """Return the condition of a variant's cells on a data set."""
        both = variant.backbone or self.grid.backbone
        source, target = variant.source_backbone or both, variant.target_backbone or both
        if source is None or target is None:
            raise InputError("no backbone is named, neither here nor in [grid]")
        if variant.start == "source weights" and source != target:
            raise InputError(f"a target of {target} cannot start from the weights of a {source}")
        return Condition(
            self._settings_of(variant, dataset),
            EncoderOptions(source, image_size=self.grid.image_size),
            EncoderOptions(target, image_size=self.grid.image_size),
            variant.pooled_source,
            variant.start,
            variant.subset or self.grid.subset,
            variant.source_clusters,
        )

    def _settings_of(self, variant: Variant, dataset: str) -> tuple[Settings, ...]:
        """Build the settings of a variant's methods; variants override data sets, which override the grid."""
        layers = (self.settings, self.dataset_settings.get(dataset, {}), variant.settings)
        families = self._families_of(variant)
        everywhere = {family for other in self.all_variants for family in self._families_of(other)}
        for layer in layers:
            for family in layer.keys() - (families if layer is variant.settings else everywhere):
                raise InputError(f"settings of {brief(family)} are given, but no method of that family runs")
        return tuple(
            kind(**{n: value for layer in layers for n, value in layer.get(family, {}).items()})
            for family, kind in FAMILIES.items()
            if family in families
        )

    def _families_of(self, variant: Variant) -> set[str]:
        """Return the families of settings that a variant's methods use."""
        kinds = {method_named(method).settings for method in self.methods_of(variant)}
        return {family for family, kind in FAMILIES.items() if kind in kinds}

    def cells(self) -> Iterator[Cell]:
        """Yield all cells, seed by seed, so that an unfinished grid has complete tables for a few seeds."""
        variants = self.all_variants
        conditions = {
            dataset: [(variant, self.condition(variant, dataset)) for variant in variants]
            for dataset in self.grid.targets
        }
        for seed in self.grid.seeds:
            for dataset, targets in self.grid.targets.items():
                for target in targets:
                    for variant, condition in conditions[dataset]:
                        for method in self.methods_of(variant):
                            yield Cell(dataset, target, seed, variant.name, method, condition)


def read_benchmark(path: Path) -> Benchmark:
    """Read a benchmark's TOML file, and make sure that every name in it is known."""
    values, where = read_toml(path, "benchmark"), str(path)
    try:
        benchmark = Benchmark(**values)
        variants = benchmark.all_variants
        if not variants:
            raise InputError("there is nothing to run: give [grid] a backbone, or add [[variants]]")
        names = [variant.name for variant in variants]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"several variants are named {brief(twice[0])}")
        if strange := sorted(benchmark.dataset_settings.keys() - benchmark.grid.targets.keys()):
            raise InputError(f"dataset_settings: the grid has no data set {brief(strange[0])}")
        if immeasurable := sorted(set(benchmark.measures) - COLUMNS.keys()):
            raise InputError(f"there is no measure {brief(immeasurable[0])}; known: {', '.join(COLUMNS)}")
        for variant in variants:
            where = f"{path}: variant {variant.name!r}" if variant.name else str(path)
            for dataset in benchmark.grid.targets:
                benchmark.condition(variant, dataset)
    except ValidationError as error:
        raise InputError(f"{where}: {first_problem(error)}") from None
    except UserError as error:
        raise InputError(f"{where}: {error}") from None
    return benchmark
