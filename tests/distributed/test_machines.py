"""Training over two machines: two network namespaces, with a process of torchrun in each."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = [pytest.mark.torch, pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(900)]

ADDRESSES = ("10.213.7.1", "10.213.7.2")
PORTS = itertools.count(29517)
LOST = "error: a process of the run has ended; look at its messages, and go on with --resume"


def run_ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def machines() -> Iterator[tuple[str, str]]:
    """Two network namespaces with an address each, and no other way out."""
    names = (f"ucds-{os.getpid()}-a", f"ucds-{os.getpid()}-b")
    try:
        for name in names:
            run_ip("netns", "add", name)
        run_ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "cable", "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            run_ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                run_ip("-n", name, "link", "set", device, "up")
    except (OSError, subprocess.CalledProcessError) as error:
        _remove(names)
        pytest.skip(f"network namespaces cannot be made here: {error}")
    yield names
    _remove(names)


def _remove(names: tuple[str, str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.fixture
def vectors(tmp_path: Path, blobs: Callable[..., Any]) -> Path:
    path = tmp_path / "source.npz"
    np.savez(path, **blobs({"one": 140, "two": 96}, n_clusters=3, width=8))
    return path


def training(data: Path, out: Path, *more: str) -> list[str]:
    """Return the command of a run whose batches have 64 samples of each domain."""
    settings = ["--method", "pcd", "--set", "source_epochs=60", "--set", "batch_size=64"]
    arguments = ["train-source", str(data), "--clusters", "3", "--out", str(out), "--accelerator", "cpu"]
    return ["-m", "ucds", *arguments, *settings, *more]


def run_alone(*command: str) -> None:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr


def start_on(names: tuple[str, str], command: list[str]) -> list[subprocess.Popen[str]]:
    """Start a command on both machines."""
    port, started = next(PORTS), []
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "cable", "UCDS_CHECKPOINT_SECONDS": "0"}
    for rank, name in enumerate(names):
        place = ["--nnodes", "2", "--node-rank", str(rank), "--nproc-per-node", "1"]
        place += ["--master-addr", ADDRESSES[0], "--master-port", str(port)]
        typed = ["ip", "netns", "exec", name, sys.executable, "-m", "torch.distributed.run", *place, *command]
        started.append(subprocess.Popen(typed, env=environment, stderr=subprocess.PIPE, text=True))
    return started


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Wait for both machines; return what each said on standard error."""
    return [process.communicate(timeout=400)[1] for process in processes]


def worker_of(process: subprocess.Popen[str]) -> int:
    """Return the id of the process that torchrun has started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (worker,) = (pid for pid in children if b"train-source" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return int(worker)


def assert_about_equal(one: Path, other: Path) -> None:
    """Compare weights and logged losses; the order of summation is all that may differ."""
    expected, found = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=5e-3, atol=5e-4, err_msg=name)
    alone, together = losses(one), losses(other)
    assert len(alone) == len(together) > 5
    for line, same in zip(alone, together, strict=True):
        assert same == {
            name: value if isinstance(value, str) else pytest.approx(value, rel=5e-3, abs=5e-4)
            for name, value in line.items()
        }


def losses(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("dying", [0, 1])
def test_a_machine_that_dies_ends_the_run_with_a_line_and_another_number_goes_on(
    dying: int, machines: tuple[str, str], vectors: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    processes = start_on(machines, training(vectors, out))
    deadline = time.monotonic() + 200
    while not (out / "checkpoint.pt").exists():
        assert all(process.poll() is None for process in processes), finish(processes)
        assert time.monotonic() < deadline
        time.sleep(0.02)
    worker = worker_of(processes[dying])
    for pid in (processes[dying].pid, worker):  # torchrun and what it started, as when the power fails
        os.kill(pid, signal.SIGKILL)
    said = finish(processes)[1 - dying]
    assert processes[1 - dying].returncode != 0
    assert said.count(LOST) == 1, said
    assert "ucds-fault-" not in said
    assert (out / "checkpoint.pt").exists()

    run_alone(*training(vectors, tmp_path / "whole"))
    run_alone(*training(vectors, out, "--resume"))
    assert_about_equal(tmp_path / "whole", out)
