"""Images per second of an encoder on the CPU, in every way to run it, and the labels that each way gives.

Real images are decoded once. Every way computes the features of the same batches; the ways take turns, and
their ratio to the package's own pass is the median over the rounds. A way keeps the labels if k-means centres
of the package's own features are nearest to the same images. Setting a way up, such as writing a graph, is
timed apart, with eight images. The last table compares the pass over cached images (reading, cropping,
normalising and encoding) with the encoder alone on inputs that are ready.

    python benchmarks/encoder.py IMAGES --weights FOLDER [--images 256] [--rounds 3] [--leave-out compiled]

FOLDER holds mobilenetv2_100.safetensors and squeezenet1_1.safetensors. Ways whose package is not installed
(`pip install openvino`) are left out.
"""

from __future__ import annotations

import argparse
import copy
import io
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from ucds.backbones import Backbone, build_backbone
from ucds.data.dataset import Dataset
from ucds.data.folders import scan_folder
from ucds.data.images import ImageSamples
from ucds.data.part_store import default_cache_dir
from ucds.data.samples import subset
from ucds.errors import InputError
from ucds.training.encoding import FrozenEncoder, find_graph
from ucds.training.features import frozen_features
from ucds.training.inputs import stored_size, view_for
from ucds.training.onnx_graph import write_onnx
from ucds.training.runtime import Runtime

ENCODERS = {"mobilenetv2_100": "mobilenetv2_100", "torchvision/squeezenet1_1": "squeezenet1_1"}
OWN = "the package's pass by PyTorch: fp32, weights channels last"
ONNX = "the package's pass by ONNX Runtime"
BATCH, CENTRES, FIRST = 64, 31, 8
CPU = torch.device("cpu")

Run = Callable[[Tensor], Tensor]


def own(backbone: Backbone) -> Run:
    return in_package(FrozenEncoder(backbone, CPU))


def onnx(backbone: Backbone) -> Run:
    example = torch.randn(FIRST, *view_for(backbone.spec).input_shape)
    with tempfile.TemporaryDirectory() as folder:
        graph = find_graph(backbone, lambda count: example[:count], Path(folder), print)
    return in_package(FrozenEncoder(backbone, CPU, graph))


def in_package(encode: FrozenEncoder) -> Run:
    return lambda inputs: torch.from_numpy(encode(inputs))


def usual_layout(backbone: Backbone) -> Run:
    copied = copy.deepcopy(backbone.module)
    for weight in copied.parameters():
        weight.data = weight.contiguous()
    return copied


def inputs_channels_last(backbone: Backbone) -> Run:
    return lambda inputs: backbone.module(inputs.to(memory_format=torch.channels_last))


def bf16(backbone: Backbone) -> Run:
    def run(inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            features: Tensor = backbone.module(inputs)
        return features.float()

    return run


def compiled(backbone: Backbone) -> Run:
    run: Run = torch.compile(backbone.module)
    return run


def openvino(backbone: Backbone) -> Run:
    import openvino

    core: Any = openvino.Core()
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "THROUGHPUT"})
    graph = write_onnx(backbone.module, torch.zeros(2, *view_for(backbone.spec).input_shape))
    model = core.compile_model(core.read_model(io.BytesIO(graph)), "CPU")
    return lambda inputs: torch.from_numpy(np.array(model(inputs.numpy())[0]))


WAYS: dict[str, Callable[[Backbone], Run]] = {
    OWN: own,
    "fp32, weights as PyTorch lays them out": usual_layout,
    "fp32, weights and inputs channels last": inputs_channels_last,
    "bf16 (autocast)": bf16,
    "fp32, torch.compile": compiled,
    ONNX: onnx,
    "fp32, OpenVINO": openvino,
}


def prepare(backbone: Backbone, first: Tensor, left_out: list[str]) -> dict[str, tuple[Run, float]]:
    """Make every way that is wanted and can be had here, with the seconds until its first features."""
    made = {}
    for name, make in WAYS.items():
        if make.__name__ in left_out:
            continue
        begun = time.perf_counter()
        try:
            run = make(backbone)
        except (ImportError, InputError) as error:
            print(f"{name}: left out ({error})", flush=True)
            continue
        run(first)
        made[name] = run, time.perf_counter() - begun
    return made


def encode(run: Run, batches: list[Tensor]) -> tuple[float, np.ndarray[Any, Any]]:
    begun = time.perf_counter()
    features = torch.cat([run(batch) for batch in batches])
    return time.perf_counter() - begun, features.numpy()


def unit(features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    scaled: np.ndarray[Any, Any] = features / np.linalg.norm(features, axis=1, keepdims=True)
    return scaled


def compare(backbone: Backbone, data: Dataset, rounds: int, left_out: list[str]) -> Iterator[str]:
    batches = list(ready_batches(data))
    n = sum(map(len, batches))
    made = prepare(backbone, batches[0][:FIRST], left_out)
    ways = {name: run for name, (run, _) in made.items()}
    found = {name: encode(run, batches)[1] for name, run in ways.items()}  # the first pass is not timed
    means = KMeans(CENTRES, n_init=4, random_state=0).fit(unit(found[OWN]))
    labels = means.predict(unit(found[OWN]))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        names = list(ways) if number % 2 else list(reversed(ways))
        for name in names:
            seconds[name].append(encode(ways[name], batches)[0])
    yield (
        "| way | images/s | times the package's pass | largest difference of a feature | other labels | "
        "seconds to set up |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, took in seconds.items():
        ratio = statistics.median(mine / its for mine, its in zip(seconds[OWN], took, strict=True))
        apart = np.abs(found[name] - found[OWN]).max() / np.abs(found[OWN]).max()
        other = int((means.predict(unit(found[name])) != labels).sum())
        rate = n / statistics.median(took)
        yield f"| {name} | {rate:.0f} | {ratio:.2f} | {apart:.1e} | {other} of {n} | {made[name][1]:.1f} |"


def ready_batches(data: Dataset) -> Iterator[Tensor]:
    for start in range(0, len(data.samples), BATCH):
        index = np.arange(start, min(start + BATCH, len(data.samples)))
        yield data.view.test(data.samples.read(index))


def overhead(backbone: Backbone, data: Dataset, rounds: int) -> str:
    batches, runtime = list(ready_batches(data)), Runtime(accelerator="cpu")
    whole, bare = [], []
    for _ in range(rounds):
        bare.append(encode(own(backbone), batches)[0])
        begun = time.perf_counter()
        frozen_features(backbone, data, runtime, None, batch_size=BATCH)
        whole.append(time.perf_counter() - begun)
    more = statistics.median(w / b for w, b in zip(whole, bare, strict=True)) - 1
    return f"{more:+.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="IMAGES")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--leave-out", nargs="*", default=[], choices=[w.__name__ for w in WAYS.values()])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    scan = scan_folder(given.folder)
    chosen = scan.take(np.linspace(0, len(scan) - 1, given.images).astype(int))
    passes = []
    lines = [
        "# The encoder's pass on the CPU",
        "",
        "Made by `python benchmarks/encoder.py`; not edited by hand.",
        "",
        f"{given.images} images in batches of {BATCH}, {given.rounds} rounds, {os.cpu_count()} processors "
        f"({processor()}), {torch.get_num_threads()} threads, torch {torch.__version__}; load average "
        f"{os.getloadavg()[0]:.1f} at the start. Figures are medians; ratios are taken within one round, and "
        "images a second depend on the load.",
    ]
    for name, file in ENCODERS.items():
        backbone = build_backbone(name, weights=given.weights / f"{file}.safetensors")
        samples = ImageSamples.open(chosen, default_cache_dir(), size=stored_size(backbone.spec))
        data = Dataset(subset(samples, np.arange(len(samples))), view_for(backbone.spec))
        backbone.module.eval()
        with torch.no_grad():
            lines += ["", f"## {name}", "", *compare(backbone, data, given.rounds, given.leave_out)]
            passes.append(f"| {name} | {overhead(backbone, data, given.rounds)} |")
        print("\n".join(lines), flush=True)
    lines += ["", "## A pass over cached images beside the bare encoder", ""]
    lines += ["| encoder | time beyond that of the encoder alone |", "| --- | ---: |", *passes]
    given.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


if __name__ == "__main__":
    main()
