"""Tests of the runtime; several processes are started in ``tests/distributed``."""

from unittest.mock import Mock

import pytest
import torch
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
