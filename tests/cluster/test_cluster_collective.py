"""The all-reduce between processes: it greets, overlaps, is called off, and says who cannot be reached."""

from __future__ import annotations

import socket
import subprocess
import threading

import pytest
import torch
from torch import distributed

from rayctsl.cluster.exchange import CollectivePlan, PeerLost, connect
from rayctsl.cluster.exchange.collective import StoreAddress

PEER = """
import sys, torch
from rayctsl.cluster.exchange import CollectivePlan, connect
from rayctsl.cluster.exchange.collective import StoreAddress
connection = connect(CollectivePlan("gloo", StoreAddress("127.0.0.1", int(sys.argv[1])), "g", 1, 2), 60)
for line in sys.stdin:
    connection(torch.tensor([float(line)] * 2)).result()
"""


def test_sums_overlap_and_can_be_called_off(python):
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    command = [python, "-c", PEER, str(store.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as peer:
        try:
            plan = CollectivePlan("gloo", StoreAddress("127.0.0.1", store.port), "g", 0, 2)
            connection = connect(plan, 60, in_background=True)
            print(5, file=peer.stdin, flush=True)
            travelling = connection(torch.tensor([1.0, 2.0]))
            assert torch.equal(travelling.result(), torch.tensor([6.0, 7.0]))
            connection.check()
            connection.exchange.wait_seconds = 100.0
            alone = connection(torch.ones(2))  # the peer does not come
            timer = threading.Timer(0.1, connection.abort)
            timer.start()
            with pytest.raises(PeerLost, match="called off"):
                alone.result()
            assert connection.wait_seconds > 100, "waits add up"
            with pytest.raises(PeerLost, match="called off"):
                connection.check()
            timer.join()
        finally:
            peer.kill()
        connection.close()


def test_an_unreachable_group_is_a_lost_peer():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = StoreAddress("127.0.0.1", probe.getsockname()[1])
        with pytest.raises(PeerLost, match="do not reach each other"):
            connect(CollectivePlan("gloo", address, "g", 0, 2), 1.0)


def test_what_an_aborted_collective_returns_is_not_trusted(monkeypatch):
    """NCCL's calls return as if nothing had happened; gloo stands in for it here, in a group of one."""
    plain, aborted = distributed.init_process_group, []
    monkeypatch.setattr(distributed, "init_process_group", lambda backend, **options: plain("gloo", **options))
    monkeypatch.setattr(distributed.distributed_c10d, "_abort_process_group", lambda: aborted.append(True))
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    connection = connect(CollectivePlan("nccl", StoreAddress("127.0.0.1", store.port), "g", 0, 1), 60)
    try:
        assert torch.equal(connection(torch.ones(2)).result(), torch.ones(2))
        connection.check()
        connection.abort()
        assert aborted == [True], "nobody woke who waits on the device"
        connection(torch.ones(2)).result()
        with pytest.raises(PeerLost, match="called off"):
            connection.check()
    finally:
        connection.close()
