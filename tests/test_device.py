"""Where a process computes, and how numbers get there."""

from __future__ import annotations

import numpy as np
import torch

from rayctsl.device import Stopwatch, choose_device, describe_device, send
from tests.strict_device import counts


def test_without_an_accelerator_the_cpu_computes():
    assert choose_device() == "cpu"
    assert describe_device("cpu").startswith(f"{torch.get_num_threads()} thread")


def test_an_accelerator_is_used_by_whoever_was_given_it(strict_device):
    assert choose_device() == strict_device
    assert choose_device(granted=False) == "cpu"
    assert describe_device(strict_device) == "strict device (sham)"


def test_sent_values_arrive_and_nobody_waits(strict_device):
    values = np.arange(6.0).reshape(2, 3)
    sent = send(values, strict_device)
    assert (counts["to device"], counts["blocking copy"]) == (1, 0)
    assert sent.device.type == strict_device
    np.testing.assert_array_equal(sent.cpu().numpy(), values)
    assert send(values, "cpu").data_ptr() == values.ctypes.data


def test_an_unpinned_copy_is_a_wait(strict_device):
    torch.ones(3).to(strict_device, non_blocking=True)
    assert counts["blocking copy"] == 1


def test_computing_time_is_measured_without_a_wait(strict_device):
    for device in ("cpu", strict_device):
        watch = Stopwatch(device)
        with watch.running():
            torch.ones(100, 100) @ torch.ones(100, 100)
        assert not counts["synchronize"]
        assert watch.take() > 0
        assert watch.take() == 0
