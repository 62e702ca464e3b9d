"""A run over two hosts, their link cut and slowed on the way: network namespaces joined by a virtual cable.

Needs root and the `ip` and `tc` programs. The learners' exchange and Ray itself go through the cable.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

from rayctsl.bench.chaos import Disturbance, drive_under, report, undisturbed
from rayctsl.bench.killer import Killer
from rayctsl.cluster.resources import connected
from rayctsl.learning.run import Run

HOSTS = ("rayctsl-a", "rayctsl-b")  # namespaces; the driver and Ray's head are on the first
ADDRESSES, LINKS, PORT = ("10.77.0.1", "10.77.0.2"), ("rcta0", "rctb0"), 6399
START_SECONDS = 120.0
CUT_SECONDS = 25.0  # longer than a silence that counts as a loss
SLOW = ["tbf", "rate", "2mbit", "burst", "8kb", "latency", "500ms"]  # a quarter of a second for a sum


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Faults survived, seconds to recover, and whether phi is the undisturbed one."""
    if arguments.inside:
        return run_inside(arguments)
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        raise ValueError("bench network makes network namespaces: it needs root and the programs ip and tc")
    flags = ["--faults", str(arguments.faults), "--steps", str(arguments.steps), "--seed", str(arguments.seed)]
    flags += ["--transport", arguments.transport]
    with two_hosts():
        command = [sys.executable, "-m", "rayctsl.bench", "network", "--inside", "--json", *flags]
        done = subprocess.run(on_host(0, *command), stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def on_host(number: int, *command: str) -> list[str]:
    return ["ip", "netns", "exec", HOSTS[number], *command]


@contextmanager
def two_hosts() -> Iterator[None]:
    """Two namespaces with a cable between them and a Ray node in each."""
    nodes: list[subprocess.Popen[bytes]] = []
    for host in HOSTS:
        subprocess.run(["ip", "netns", "add", host], check=True)
    try:
        subprocess.run(["ip", "link", "add", LINKS[0], "type", "veth", "peer", "name", LINKS[1]], check=True)
        for number, (host, link) in enumerate(zip(HOSTS, LINKS, strict=True)):
            subprocess.run(["ip", "link", "set", link, "netns", host], check=True)
            subprocess.run(on_host(number, "ip", "addr", "add", f"{ADDRESSES[number]}/24", "dev", link), check=True)
            for each in ("lo", link):
                subprocess.run(on_host(number, "ip", "link", "set", each, "up"), check=True)
        head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        nodes.append(start_node(0, *head))
        wait_for_head()
        nodes.append(start_node(1, f"--address={ADDRESSES[0]}:{PORT}"))
        yield
    finally:
        for number, host in enumerate(HOSTS):
            # Only what runs inside the namespaces that were made here.
            listed = subprocess.run(["ip", "netns", "pids", host], stdout=subprocess.PIPE, text=True)
            for pid in listed.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            subprocess.run(["ip", "netns", "del", HOSTS[number]])
        for node in nodes:
            node.wait()


def wait_for_head() -> None:
    """Until Ray's head listens."""
    knock = f"import socket; socket.create_connection(({ADDRESSES[0]!r}, {PORT}), 5)"
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run(on_host(0, sys.executable, "-c", knock), stderr=subprocess.DEVNULL).returncode:
        if time.monotonic() > deadline:
            raise RuntimeError(f"Ray's head has not come up within {START_SECONDS:.0f} s")


def start_node(number: int, *flags: str) -> subprocess.Popen[bytes]:
    """A Ray node with room for one learner, in the foreground of a process of its own."""
    settings = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    program = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--block", *flags]
    command = on_host(number, *program, f"--node-ip-address={ADDRESSES[number]}")
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env={**os.environ, **settings}, stdout=quiet, stderr=quiet)


def run_inside(arguments: argparse.Namespace) -> dict[str, Any]:
    os.environ["RAY_AUTH_MODE"] = "disabled"
    plan = ["partition" if number % 2 == 0 else "slow link" for number in range(arguments.faults)]
    with tempfile.TemporaryDirectory() as folder:
        disturbance = Disturbance(folder, plan, arguments.seed, True, 2, arguments.steps, arguments.transport)
        expected = undisturbed(disturbance)
        with connected(f"{ADDRESSES[0]}:{PORT}"):
            drive_under(CableCutter(plan, disturbance.journal, None, arguments.seed), disturbance)
        return {**report(disturbance, expected), "seed": arguments.seed, "transport": arguments.transport}


class CableCutter(Killer):
    """Cuts and slows the cable; after a cut, the second host's Ray node comes back as a new one."""

    def harm(self, kind: str) -> bool:
        assert self.target is not None
        if kind == "slow link":
            return self._slow(self.target, self.random)
        if len({place.node for place in self.target.engine.team.places}) < 2:  # type: ignore[attr-defined]
            return False  # the second host has not come back yet
        subprocess.run(on_host(1, "ip", "link", "set", LINKS[1], "down"), check=True)
        time.sleep(CUT_SECONDS)
        subprocess.run(on_host(1, "ip", "link", "set", LINKS[1], "up"), check=True)
        start_node(1, f"--address={ADDRESSES[0]}:{PORT}")
        return True

    def _slow(self, run: Run, chance: Random) -> bool:
        """For some steps; no fault, so nothing to recover from."""
        for number, link in enumerate(LINKS):
            subprocess.run(on_host(number, "tc", "qdisc", "add", "dev", link, "root", *SLOW), check=True)
        time.sleep(chance.uniform(3, 6))
        for number, link in enumerate(LINKS):
            subprocess.run(on_host(number, "tc", "qdisc", "del", "dev", link, "root"), check=True)
        self.recovered.set()
        return True
