"""Looks, before anything is run, at what a benchmark needs, and says of each cell what is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ucds.backbones import Backbone, build_backbone
from ucds.choices import Accelerator, Precision
from ucds.data.folders import scan_domains
from ucds.data.ground_truth import read_ground_truth
from ucds.data.layouts import tell_layout
from ucds.errors import UserError
from ucds.experiments.datasets import Located, locate
from ucds.experiments.grid import Benchmark, Cell, Encoder
from ucds.experiments.methods import METHODS
from ucds.training.features import frozen_features
from ucds.training.launch import CacheOptions, open_for_training
from ucds.training.progress import Reporter
from ucds.training.runtime import Runtime
from ucds.training.stage import TrainingData

RANDOM = "none (random)"


@dataclass(frozen=True)
class Place:
    """What a benchmark needs of the machine it runs on.

    Attributes:
        data: folder of a data set, or of several.
        weights: where encoders' weights come from, by name of encoder; under ``""`` for all others.
        cache: where decoded images and features go.
        accelerator: "auto", "cpu" or "cuda".
        precision: of forward passes.
        threads: of each task; torch's choice if ``None``.
    """

    data: Path
    weights: Mapping[str, str]
    cache: CacheOptions
    accelerator: Accelerator = "auto"
    precision: Precision = "32-true"
    threads: int | None = None


def read_weights(given: Sequence[str]) -> dict[str, str]:
    """Read ``--weights`` as it was given: ``NAME=FILE`` for one encoder, anything else for all others.

    Raises:
        UserError: one encoder is given twice.
    """
    weights: dict[str, str] = {}
    for text in given:
        name, equals, file = text.partition("=")
        name, file = (name, file) if equals and not Path(text).exists() else ("", text)
        if name in weights:
            raise UserError(f"--weights is given twice for {name or 'all encoders'}")
        weights[name] = file
    return weights


@dataclass
class Survey:
    """What of a benchmark's needs is there.

    Attributes:
        located: data sets that were found.
        faults: why something cannot be used: data sets, targets and encoders.
        weights: what each usable encoder starts from.
        data: fingerprint of the inputs, by data set and encoder.
    """

    located: dict[str, Located] = field(default_factory=dict)
    faults: dict[object, str] = field(default_factory=dict)
    weights: dict[Encoder, str] = field(default_factory=dict)
    data: dict[tuple[str, Encoder], str] = field(default_factory=dict)

    def fault(self, cell: Cell) -> str | None:
        """Why a cell cannot be run, if it cannot."""
        keys = [cell.dataset, (cell.dataset, cell.target), *encoders_of(cell)]
        return next((self.faults[key] for key in keys if key in self.faults), None)

    def origin(self, cell: Cell) -> dict[str, str]:
        """Which weights and data a cell is made from; see :data:`ucds.experiments.records.ORIGIN`.

        A method that needs one side's encoder only is as good as one with that encoder on both sides.
        """
        used = [self.weights[encoder] for encoder in encoders_of(cell)] or [RANDOM]
        return {
            "weights": used[-1],
            "source_weights": used[0],
            "data": self.data[cell.dataset, cell.condition.target],
        }


def encoders_of(cell: Cell) -> list[Encoder]:
    """The pre-trained encoders that a cell needs, the source's first."""
    needs = METHODS[cell.method].encoders
    source, target = cell.condition.source, cell.condition.target
    return {"source": [source], "target": [target], "both": [source, target], "none": []}[needs]


def survey(benchmark: Benchmark, place: Place, reporter: Reporter) -> Survey:
    """Look at the data sets and encoders of a benchmark, and say which cells will be missing.

    Raises:
        UserError: not a single cell can be run.
    """
    found = Survey()
    for name, targets in benchmark.grid.targets.items():
        try:
            located = found.located[name] = locate(place.data, name, targets)
            tell_layout(located.path, located.domains, reporter.say, with_classes=True)
            for target, fault in _faulty_targets(located, targets):
                found.faults[name, target] = fault
        except UserError as error:
            found.faults[name] = str(error)
    cells = list(benchmark.cells())
    for encoder in dict.fromkeys(e for cell in cells for e in encoders_of(cell)):
        try:
            found.weights[encoder] = make_backbone(encoder, place).weights
        except UserError as error:
            found.faults[encoder] = str(error).replace("--weights FILE", f"--weights {encoder.name}=FILE")
    faulty = [cell for cell in cells if found.fault(cell) is not None]
    for line in _in_words(faulty, found):
        reporter.say(line)
    if len(faulty) == len(cells):
        raise UserError(f"nothing can be run: {found.fault(faulty[0])}")
    return found


def _faulty_targets(located: Located, targets: Iterable[str]) -> Iterator[tuple[str, str]]:
    scan = scan_domains(located.path, located.domains)
    if read_ground_truth(scan) is None:
        raise UserError(f"{located.path} has no class folders to score against")
    for target in targets:
        if located.folders.get(target) not in scan.domain_names:
            yield target, f"{located.path} has no domain {target}"


def _in_words(faulty: Iterable[Cell], found: Survey) -> Iterator[str]:
    """One line a reason, naming the cells that it leaves missing."""
    by_reason: dict[str, list[Cell]] = defaultdict(list)
    for cell in faulty:
        by_reason[found.fault(cell) or ""].append(cell)
    for reason, cells in by_reason.items():
        tasks = ", ".join(dict.fromkeys(f"{cell.dataset} {cell.target}".strip() for cell in cells))
        rows = ", ".join(dict.fromkeys(row_name(cell) for cell in cells))
        yield f"missing, {len(cells)} cells ({rows} on {tasks}): {reason}"


def row_name(cell: Cell) -> str:
    """Method and variant of a cell in short."""
    return f"{cell.method} [{cell.variant}]" if cell.variant else cell.method


def make_backbone(encoder: Encoder, place: Place) -> Backbone:
    """Build an encoder with its pre-trained weights, anew at every call.

    Raises:
        UserError: the name is unknown, or the weights cannot be had or do not fit.
    """
    weights = encoder.weights(place.weights)
    return build_backbone(encoder.name, weights=weights, input_size=encoder.image_size)


def open_inputs(located: Located, encoder: Encoder, place: Place, reporter: Reporter) -> TrainingData:
    """All samples of a data set as an encoder takes them; for that its weights are not needed."""
    return open_for_training(
        located.path,
        backbone=encoder.name,
        weights="none",
        image_size=encoder.image_size,
        with_domains=True,
        domains=located.domains,
        cache=place.cache,
        reporter=reporter,
    ).data


def decode_all(cells: Iterable[Cell], found: Survey, place: Place, reporter: Reporter) -> None:
    """Decode all images that cells need, before tasks run side by side, and know the data by them."""
    for cell in cells:
        for encoder in (cell.condition.source, cell.condition.target):
            if (cell.dataset, encoder) not in found.data:
                data = open_inputs(found.located[cell.dataset], encoder, place, reporter)
                found.data[cell.dataset, encoder] = data.samples.fingerprint[:16]


def compute_features(cells: Iterable[Cell], found: Survey, place: Place, reporter: Reporter) -> None:
    """Compute the features of frozen encoders, before tasks run side by side."""
    needed = {
        (cell.dataset, encoder): cell.condition.config.prediction_batch_size
        for cell in cells
        if cell.condition.config.tune == "head"
        for encoder in encoders_of(cell)
    }
    for (dataset, encoder), batch_size in needed.items():
        data = open_inputs(found.located[dataset], encoder, place, reporter)
        backbone = make_backbone(encoder, place)
        runtime = Runtime(accelerator=place.accelerator, reporter=reporter)
        backbone.module.to(runtime.device)
        frozen_features(backbone, data, runtime, place.cache.place, batch_size=batch_size)
