"""What batches from the image cache cost, beside a training step of ResNet-18 on the same images.

    python benchmarks/loading.py [DATA]

DATA is a folder with one folder per domain; without it, JPEGs of noise are made. Writes `loading.md`
beside this script. The step is forward, backward and update at 64 x 224 pixels, weights random.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import PIL
import torch
from PIL import Image
from torchvision.models import resnet18

from ucds.data.batches import DomainBalancedSampler
from ucds.data.folders import Scan, scan_domains
from ucds.data.images import ImageSamples
from ucds.data.views import ImageView

BATCH_SIZE = 64
TARGET = 0.05


def main() -> None:
    arguments = parsed()
    if arguments.memory_of is not None:
        print(json.dumps(peak_memory(arguments.memory_of, arguments.every)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.data or made_up(Path(scratch) / "data", arguments.images)
        lines = report(folder, Path(scratch) / "cache", arguments.data is None, arguments.steps)
    text = "\n".join(lines) + "\n"
    print(text)
    arguments.out.write_text(text, encoding="utf-8")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--images", type=int, default=2000, help="number of images to make without DATA")
    parser.add_argument("--steps", type=int, default=5, help="training steps timed in each precision")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--every", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args()


def made_up(folder: Path, count: int) -> Path:
    """Noise of 400 x 300 pixels in two domains."""
    generator = np.random.default_rng(0)
    for i in range(count):
        path = folder / ("north", "south")[i % 2] / f"{i:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = generator.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((400, 300), Image.Resampling.BICUBIC).save(path, quality=90)
    return folder


def report(folder: Path, cache: Path, synthetic: bool, steps: int) -> list[str]:
    scan = scan_domains(folder)
    first = timed(lambda: ImageSamples.open(scan, cache))
    again = timed(lambda: ImageSamples.open(scan, cache))
    samples = ImageSamples.open(scan, cache)
    loading = loading_seconds(samples)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = []
    for name, dtype in (("fp32", torch.float32), ("bf16 autocast", torch.bfloat16)):
        step = step_seconds(dtype, steps, device)
        share = loading["all"] / step
        rows.append(f"| {name} | {step:.3f} s | {share:.2%} | {'met' if share <= TARGET else 'MISSED'} |")
    quarter, whole = (memory_in_new_process(folder, every) for every in (4, 1))
    kind = "JPEGs of noise, 400 x 300" if synthetic else "given images"
    return [
        "# Batches from the image cache",
        "",
        f"{len(samples):,} {kind}, {len(samples.domain_names)} domains; {versions(device)}.",
        f"Medians; batch {BATCH_SIZE}, 256 x 256 kept, 224 x 224 used. Written by `benchmarks/loading.py`.",
        "",
        "| one batch | milliseconds |",
        "| --- | --- |",
        *(f"| {name} | {1000 * seconds:.1f} |" for name, seconds in loading.items()),
        "",
        f"| ResNet-18 step ({device.type}) | seconds | batch / step | at most {TARGET:.0%} |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        f"Opening: {first:.2f} s the first time ({1000 * first / len(samples):.2f} ms an image), "
        f"{again:.3f} s with everything in the cache.",
        "",
        "| images | peak memory, import only | after decoding | after 100 batches |",
        "| --- | --- | --- | --- |",
        *(
            f"| {m['images']:,.0f} | {m['import']:.0f} MiB | {m['decoded']:.0f} MiB | {m['read']:.0f} MiB |"
            for m in (quarter, whole)
        ),
    ]


def loading_seconds(samples: ImageSamples, batches: int = 40) -> dict[str, float]:
    """Median seconds of each part of a batch, one after the other in one thread of Python."""
    sampler = DomainBalancedSampler(samples.domain, BATCH_SIZE, seed=0)
    view = ImageView()
    generator = torch.Generator().manual_seed(0)
    times: dict[str, list[float]] = {"sampler": [], "read": [], "crop, flip, normalise": []}
    for step in range(batches):
        start = time.perf_counter()
        index = sampler.batch(step)
        sampled = time.perf_counter()
        raw = samples.read(index)
        read = time.perf_counter()
        view.train(raw, view.draw(len(raw), generator))
        end = time.perf_counter()
        for name, seconds in zip(times, (sampled - start, read - sampled, end - read), strict=True):
            times[name].append(seconds)
    parts = {name: median(values) for name, values in times.items()}
    return parts | {"all": sum(parts.values())}


def step_seconds(dtype: torch.dtype, steps: int, device: torch.device) -> float:
    """Median seconds of a training step."""
    model = resnet18(weights=None).to(device).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(BATCH_SIZE, 3, 224, 224, device=device)
    labels = torch.randint(0, 1000, (BATCH_SIZE,), device=device)

    def step() -> None:
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    step()
    return median(timed(step) for _ in range(steps))


def memory_in_new_process(folder: Path, every: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--memory-of", str(folder), "--every", str(every)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    memory: dict[str, float] = json.loads(answer)
    return memory


def peak_memory(folder: Path, every: int) -> dict[str, float]:
    """Peak memory of this process in MiB: at the start, after decoding, after 100 batches."""
    whole = scan_domains(folder)
    scan = Scan(whole.root, whole.paths[::every], whole.domain[::every], whole.domain_names)
    memory = {"images": float(len(scan)), "import": peak()}
    with tempfile.TemporaryDirectory() as cache:
        samples = ImageSamples.open(scan, cache)
        memory["decoded"] = peak()
        loading_seconds(samples, batches=100)
        memory["read"] = peak()
    return memory


def peak() -> float:
    status = Path("/proc/self/status")
    if status.exists():  # unlike getrusage's, not inherited from the process that started this one
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 2**10
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (2**20 if sys.platform == "darwin" else 2**10)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def versions(device: torch.device) -> str:
    where = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
    threads = torch.get_num_threads()
    return (
        f"Python {platform.python_version()}, torch {torch.__version__}, Pillow {PIL.__version__}, "
        f"{threads} threads, {where}"
    )


if __name__ == "__main__":
    main()
