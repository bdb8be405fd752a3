"""Tests of the runtime; several processes are started in ``tests/distributed``."""

import copy
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ucds.errors import InputError
from ucds.gradients.runtime import Runtime
from ucds.training.options import Compute

pytestmark = pytest.mark.torch


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(Compute("cpu", cache=None))


def test_one_process_is_the_first_and_works_on_everything(runtime: Runtime) -> None:
    runtime.launch()
    assert (runtime.processes, runtime.rank, runtime.device.type) == (1, 0, "cpu")
    assert runtime.share(7) == slice(0, 7)
    rows = torch.randn(3, 2)
    assert runtime.pool(rows) is rows
    assert runtime.broadcast({"a": 1}) == {"a": 1}
    assert [runtime.any_of(asked) for asked in (True, False)] == [True, False]


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_normalisation_over_processes_is_that_of_all_their_rows(
    momentum: float | None, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one process, which is told that there are more, has all the rows."""
    monkeypatch.setattr(Runtime, "processes", 2)
    inputs = torch.randn(5, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    plain = nn.BatchNorm2d(3, eps=0.1, momentum=momentum)
    nn.init.normal_(plain.weight)
    spanning = copy.deepcopy(plain)
    placed, _ = runtime.place(spanning, torch.optim.SGD(spanning.parameters()))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        outputs = [layer(inputs) for layer in (placed, plain)]
        for output in outputs:
            output.pow(3).sum().backward()
    finally:
        dist.destroy_process_group()
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(spanning.state_dict(), plain.state_dict())
    torch.testing.assert_close(spanning.weight.grad, plain.weight.grad)


def test_several_processes_refuse_a_batch_normalisation_that_computes_something_else() -> None:
    class Doubled(nn.BatchNorm1d):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(inputs)

    runtime = Runtime(Compute("cpu", cache=None), devices=2)
    with pytest.raises(InputError, match="several processes cannot train the layer Doubled"):
        runtime.place(nn.Sequential(Doubled(3)), Mock())


def test_other_devices_than_those_of_torchrun_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    started = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="`devices=3`, but torchrun has started 2 processes on this machine"):
        Runtime(Compute("cpu", cache=None), devices=3)
