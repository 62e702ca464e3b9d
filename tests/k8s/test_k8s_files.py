"""The files of k8s/ as they lie there: no secret, no key twice, no path in README that does not exist."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from k8s_checks.kubectl import INSTALLED, PINNED, kubectl, renders
from k8s_checks.manifests import pod, world
from k8s_checks.operator import millis
from k8s_checks.rules_pods import size

ROOT = Path(__file__).parents[2]
FILES = [path for path in (ROOT / "k8s").rglob("*") if path.is_file() and path.suffix != ".pyc"]


def test_no_file_holds_anything_like_a_secret() -> None:
    patterns = r"BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,}|eyJ[\w-]{20,}|(?<!sha256:)\b[0-9a-f]{40,}"
    assert len(FILES) > 40
    assert [path.name for path in FILES if re.search(patterns, path.read_text())] == []


def test_no_key_is_written_twice() -> None:
    """PyYAML takes the last of two equal keys in silence, and so may an API server."""

    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Any:
        keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{keys} at {node.start_mark}"
        return loader.construct_mapping(node, deep=True)

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    for path in FILES:
        if path.suffix == ".yaml":
            list(yaml.load_all(path.read_text(), Loader=Strict))


def test_readme_names_files_that_exist() -> None:
    text = (ROOT / "k8s" / "README.md").read_text()
    named = set(re.findall(r"(?<!tests/)\bk8s/[\w./-]*\w", text)) | {
        f"k8s/{name}" for name in re.findall(r"`((?:base|components|overlays|runs)/[\w./-]*)`", text)
    }
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_backup_in_readme_can_be_taken_twice(tmp_path: Path) -> None:
    (script,) = re.findall(r'python -c "\n(.*?)"\n', (ROOT / "k8s" / "README.md").read_text(), re.DOTALL)
    script = textwrap.dedent(script).replace("/state", str(tmp_path))
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.sqlite3")) as store:
        store.execute("CREATE TABLE jobs (id TEXT)")
        for number in range(2):
            store.execute("INSERT INTO jobs VALUES (?)", [str(number)])
            store.commit()
            subprocess.run([sys.executable, "-c", script], check=True)
            with contextlib.closing(sqlite3.connect(tmp_path / "backup.sqlite3")) as backup:
                assert backup.execute("SELECT count(*) FROM jobs").fetchone() == (number + 1,)


def test_readme_tells_what_the_demo_asks_for(rendered: None) -> None:
    """The service, the head of its cluster, and a run with its head, one worker and its submitter."""
    objects = world("local-cpu")
    wanted = ["Deployment/rayctsl-service", "RayCluster/rayctsl head"]
    wanted += [f"RayJob/train {part}" for part in ("head", "cpu", "submitter")]
    asked = [c["resources"]["requests"] for where in wanted for c in pod(objects, where).spec["containers"]]
    cpus, gib = sum(millis(each["cpu"]) for each in asked) / 1000, sum(size(each["memory"]) for each in asked) / 2**30
    assert f"It asks for {cpus:.1f} CPUs and {gib:.1f} GiB" in (ROOT / "k8s" / "README.md").read_text()


def test_every_component_is_used_and_explained() -> None:
    text = (ROOT / "k8s" / "README.md").read_text()
    folders = [each.name for each in (ROOT / "k8s" / "components").iterdir()]
    uses = " ".join(path.read_text() for path in FILES if path.name == "kustomization.yaml")
    for name in folders:
        assert re.search(rf"(\.\./|components/){name}\b", uses) or name == "workload-identity", name
        assert f"`{name}`" in text, name


def test_components_that_no_overlay_takes_render_too(tmp_path: Path) -> None:
    target = ROOT / "k8s"
    folder = tmp_path / "own"
    folder.mkdir()
    lines = [
        f"  - {_relative(target / 'components' / name, folder)}" for name in ("gke", "workload-identity", "release")
    ]
    base = _relative(target / "base", folder)
    (folder / "kustomization.yaml").write_text(
        "\n".join(["namespace: rayctsl", "resources:", f"  - {base}", "components:", *lines])
    )
    done = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = {each["metadata"]["name"] for each in yaml.safe_load_all(done.stdout)}
    assert {"workload-identity", "cloud-dns", "load-balancer"} <= names


def _relative(path: Path, start: Path) -> str:
    return os.path.relpath(path, start)


def test_an_old_kubectl_is_not_taken(tmp_path: Path) -> None:
    old = tmp_path / "kubectl"
    old.write_text("#!/bin/sh\necho 'Client Version: v1.20.2'\necho 'Kustomize Version: v2.0.3'\n")
    old.chmod(0o755)
    assert not renders(str(old))
    assert not renders(str(tmp_path / "none"))
    assert renders(kubectl())


def test_the_kubectl_to_install_is_pinned_by_its_hash() -> None:
    assert re.fullmatch(r"[\w.-]+==[\d.]+ --hash=sha256:[0-9a-f]{64}\n", PINNED.read_text())
    assert INSTALLED.parent.is_dir()


@pytest.mark.parametrize("name", ["rayclusters", "rayjobs"])
def test_kuberays_definitions_come_with_their_licence(name: str) -> None:
    folder = ROOT / "tests" / "assets" / "kuberay"
    assert (folder / f"{name}.yaml.gz").is_file()
    assert "Apache License" in (folder / "LICENSE").read_text()
    assert "v1.7.0" in (folder / "README.md").read_text()
