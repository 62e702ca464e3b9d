"""Reading rendered manifests: what lives in the namespace when an overlay is applied and its runs are created."""

from __future__ import annotations

import functools
import shlex
import string
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from k8s_checks.kubectl import kubectl
from k8s_checks.operator import Pod, cluster_of_job, ray_pods, submitter_pod

ROOT = Path(__file__).parents[3]
Object = dict[str, Any]
OVERLAYS = sorted(each.name for each in (ROOT / "k8s" / "overlays").iterdir())
RUNS = {
    name: sorted(f"runs/{name}/{run.name}" for run in (ROOT / "k8s" / "runs" / name).iterdir()) for name in OVERLAYS
}


@functools.cache
def render(folder: str) -> list[Object]:
    """The objects of `base`, `overlays/NAME` or `runs/NAME/RUN`, as plain `kubectl apply -k` would send them."""
    command = [kubectl(), "kustomize", str(ROOT / "k8s" / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


def render_all() -> None:
    """Every kustomization, two at a time: the rest of the session finds them made."""
    folders = [f"overlays/{name}" for name in OVERLAYS] + [run for runs in RUNS.values() for run in runs]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(render, folders))


def world(overlay: str) -> list[Object]:
    """An overlay and all its runs: what one namespace holds when everything has been applied and created."""
    return [each for folder in (f"overlays/{overlay}", *RUNS[overlay]) for each in render(folder)]


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def only(objects: list[Object], kind: str, name: str | None = None) -> Object:
    (found,) = [each for each in of_kind(objects, kind) if name in (None, each["metadata"]["name"])]
    return found


def names_of(objects: list[Object], kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in of_kind(objects, kind)}


def values_of(tree: Any, key: str) -> Iterator[Any]:
    """Every value under a key, at any depth."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name == key:
                yield value
            yield from values_of(value, key)
    elif isinstance(tree, list):
        for value in tree:
            yield from values_of(value, key)


def pods_of(objects: list[Object]) -> list[Pod]:
    """Every pod that the objects make, Ray's as the operator makes them."""
    found: list[Pod] = []
    for each in objects:
        where, spec = f"{each['kind']}/{each['metadata']['name']}", each.get("spec", {})
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            template = spec["template"]
            metadata = template["metadata"]
            found.append(Pod(where, metadata["labels"], metadata.get("annotations", {}), template["spec"]))
        if each["kind"] == "RayCluster":
            found += ray_pods(where, each["metadata"]["name"], spec)
        if each["kind"] == "RayJob":
            found += ray_pods(where, cluster_of_job(each["metadata"]["name"]), spec["rayClusterSpec"])
            found.append(submitter_pod(where, each))
    return found


def pod(objects: list[Object], where: str) -> Pod:
    (found,) = [each for each in pods_of(objects) if each.where == where]
    return found


def environment_of(objects: list[Object]) -> dict[str, str]:
    return only(objects, "ConfigMap", "rayctsl-environment")["data"]


def command_lines(objects: list[Object]) -> list[tuple[str, list[str]]]:
    """Every `python -m …` in the manifests, its variables filled in. The wrapper around it is left out."""
    environment = environment_of(objects)
    found = []
    for each in of_kind(objects, "RayJob"):
        words = shlex.split(string.Template(each["spec"]["entrypoint"]).safe_substitute(environment))
        found.append((f"RayJob/{each['metadata']['name']}", words[words.index("python") :]))
    for each in pods_of(objects):
        for container in each.containers:
            words = [*container.get("command", []), *container.get("args", [])]
            for name, value in environment.items():
                words = [word.replace(f"$({name})", value) for word in words]
            if words[:2] == ["python", "-m"]:
                found.append((each.where, words))
            if words[:2] == ["bash", "-c"] and words[2].startswith("until python -m "):
                loop = shlex.split(words[2].removeprefix("until ").partition(";")[0])
                found.append((each.where, [*loop[:-1], *words[4:]]))  # "$@" are the words after its name
    return found


def mounted_configs(where: Pod, objects: list[Object]) -> dict[str, str]:
    """Path in the first container -> text, for every file of a ConfigMap that a pod mounts."""
    volumes = {volume["name"]: volume for volume in where.spec["volumes"]}
    files: dict[str, str] = {}
    for mount in where.containers[0]["volumeMounts"]:
        source = volumes.get(mount["name"], {}).get("configMap")
        if source:
            data = only(objects, "ConfigMap", source["name"])["data"]
            chosen = {"": data[mount["subPath"]]} if "subPath" in mount else {f"/{n}": text for n, text in data.items()}
            files |= {mount["mountPath"] + name: text for name, text in chosen.items()}
    return files
