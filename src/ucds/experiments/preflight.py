"""Finds the data and encoders of a benchmark before anything runs, and says what its cells lack."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ucds.choices import Tune
from ucds.config import ModelSettings
from ucds.data.dataset import Dataset
from ucds.data.folders import scan_domains
from ucds.data.ground_truth import read_ground_truth
from ucds.data.sources import find_samples
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError, UcdsWarning, UserError
from ucds.experiments.datasets import Located, check_counts, locate
from ucds.experiments.grid import Benchmark, Cell
from ucds.experiments.methods import method_named
from ucds.extras import require_extra
from ucds.training.features import frozen_features
from ucds.training.inputs import open_for_training
from ucds.training.options import Compute, EncoderOptions

RANDOM = "none (random)"


@dataclass(frozen=True)
class Machine:
    """The machine that a benchmark runs on."""

    data: Path  # folder of a data set, or of several
    weights: Mapping[str, str]  # file or source by name of encoder; the entry "" is for all others
    compute: Compute = field(default_factory=Compute)


def read_weights(given: Sequence[str]) -> dict[str, str]:
    """Read the texts of ``--weights``: ``NAME=FILE`` for one encoder, anything else for all others."""
    weights: dict[str, str] = {}
    for text in given:
        name, equals, file = text.partition("=")
        name, file = (name, file) if equals and not Path(text).exists() else ("", text)
        if name in weights:
            raise InputError(f"`weights` is given twice for {name or 'all encoders'}")
        weights[name] = file
    return weights


@dataclass
class Survey:
    """Data sets and encoders of a benchmark, as they were found on a machine."""

    located: dict[str, Located] = field(default_factory=dict)  # by name of the data set
    faults: dict[object, str] = field(default_factory=dict)  # by what cannot be used: a target, an encoder
    weights: dict[EncoderOptions, str] = field(default_factory=dict)  # of each usable encoder
    data: dict[tuple[str, EncoderOptions], str] = field(default_factory=dict)  # fingerprints of inputs
    draws_features: bool = False  # whether a figure shows features in the plane, which records then hold

    def fault(self, cell: Cell) -> str | None:
        """Return the reason why a cell cannot be run; ``None`` if it can."""
        keys = [cell.dataset, (cell.dataset, cell.target), *encoders_of(cell), method_named(cell.method)]
        return next((self.faults[key] for key in keys if key in self.faults), None)

    def origin(self, cell: Cell) -> dict[str, str]:
        """Return the weights and data that a cell is made from; see :data:`ucds.experiments.records.ORIGIN`.

        If a method needs the encoder of one side only, both sides are described with this encoder.
        """
        used = [self.weights[encoder] for encoder in encoders_of(cell)] or [RANDOM]
        data = self.data[cell.dataset, cell.condition.target]
        return {"weights": used[-1], "source_weights": used[0], "data": data}


def encoders_of(cell: Cell) -> list[EncoderOptions]:
    """Return the pre-trained encoders that a cell needs, the source's first."""
    needs = method_named(cell.method).encoders
    source, target = cell.condition.source, cell.condition.target
    return {"source": [source], "target": [target], "both": [source, target], "none": []}[needs]


def survey(benchmark: Benchmark, machine: Machine) -> Survey:
    """Find data sets and encoders of a benchmark, and say which cells will be missing, and why."""
    found = Survey(draws_features=any(figure.kind == "tsne" for figure in benchmark.figures))
    for name, targets in benchmark.grid.targets.items():
        try:
            located = found.located[name] = locate(machine.data, name, targets)
            scan = scan_domains(located.path, located.domains)
            truth = read_ground_truth(scan)
            if truth is None:
                raise InputError(
                    f"{located.path} has no class folders to score against, or files outside them"
                )
            check_counts(name, scan, truth.n_classes)
            for target in targets:
                if located.folders.get(target) not in scan.domain_names:
                    found.faults[name, target] = f"{located.path} has no domain {target}"
        except UserError as error:
            found.faults[name] = str(error)
    cells = list(benchmark.cells())
    learns = any(isinstance(cell.settings, ModelSettings) for cell in cells)
    for encoder in dict.fromkeys(e for cell in cells for e in encoders_of(cell)):
        try:
            made = machine.compute.place(make_encoder(encoder, machine), learns=learns)
            found.weights[encoder] = made.weights
        except UserError as error:
            found.faults[encoder] = str(error).replace("`weights`", f"`weights={encoder.backbone}=FILE`")
    for method in dict.fromkeys(method_named(cell.method) for cell in cells):
        if method.needs:
            try:
                require_extra(method.needs, method.title)
            except UserError as error:
                found.faults[method] = str(error)
    missing: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        if (reason := found.fault(cell)) is not None:
            missing[reason].append(cell)
    for reason, faulty in missing.items():
        tasks = ", ".join(dict.fromkeys(f"{cell.dataset} {cell.target}".strip() for cell in faulty))
        rows = ", ".join(dict.fromkeys(cell.row for cell in faulty))
        machine.compute.reporter.say(f"missing, {len(faulty)} cells ({rows} on {tasks}): {reason}")
    if sum(map(len, missing.values())) == len(cells):
        raise InputError(f"nothing can be run: {next(iter(missing))}")
    return found


def make_encoder(encoder: EncoderOptions, machine: Machine, tune: Tune = "head") -> Encoder:
    """Return a new encoder with the weights on this machine, frozen ("head") or to be trained ("full")."""
    given = machine.weights
    weights = given.get(encoder.backbone or "", given.get("", encoder.weights))
    chosen = replace(encoder, weights=weights)
    return chosen.network(machine.compute) if tune == "full" else chosen.find(machine.compute)


def open_inputs(located: Located, encoder: EncoderOptions, machine: Machine, compute: Compute) -> Dataset:
    """Open all samples of a data set as an encoder takes them."""
    found = find_samples(located.path, by_domain=True, domains=located.domains)
    return open_for_training(found, make_encoder(encoder, machine), compute).data


def decode_all(cells: Iterable[Cell], found: Survey, machine: Machine) -> None:
    """Decode all images that cells need, before processes run in parallel, and note their fingerprints."""
    for cell in cells:
        for encoder in (cell.condition.source, cell.condition.target):
            if (cell.dataset, encoder) not in found.data:
                data = open_inputs(found.located[cell.dataset], encoder, machine, machine.compute)
                found.data[cell.dataset, encoder] = data.samples.fingerprint[:16]


def compute_features(cells: Iterable[Cell], found: Survey, machine: Machine) -> None:
    """Compute the features of frozen encoders, before processes run in parallel."""
    needed = {
        (cell.dataset, encoder): None
        for cell in cells
        if not isinstance(cell.settings, ModelSettings) or cell.settings.tune == "head"
        for encoder in encoders_of(cell)
    }
    for dataset, encoder in needed:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UcdsWarning)  # said when the images were decoded
            data = open_inputs(found.located[dataset], encoder, machine, machine.compute.silent())
        frozen_features(make_encoder(encoder, machine), data, machine.compute, machine.compute.reporter.show)
