"""Reading rendered manifests: every pod in them, and KubeRay's schemas as strict JSON schemas."""

from __future__ import annotations

import functools
import shlex
import string
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
CRDS = ROOT.parent / "shared" / "reference" / "kuberay-crds"
Object = dict[str, Any]


@functools.cache
def render(folder: str) -> list[Object]:
    """The objects of `base` or `overlays/NAME`, as plain `kubectl apply -k` would send them."""
    command = ["kubectl", "kustomize", str(ROOT / "k8s" / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


def only(objects: list[Object], kind: str, name: str | None = None) -> Object:
    (found,) = [each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found


@dataclass(frozen=True)
class Pod:
    """A pod that an object makes. Example: Pod("RayCluster/rayctsl head", {...labels}, {...spec})"""

    where: str
    labels: dict[str, str]
    spec: Object

    @property
    def containers(self) -> list[Object]:
        return self.spec["containers"]


def pods_of(objects: list[Object]) -> Iterator[Pod]:
    for each in objects:
        where = f"{each['kind']}/{each['metadata']['name']}"
        spec = each.get("spec", {})
        if each["kind"] in ("Deployment", "StatefulSet"):
            yield _pod(where, spec["template"])
        if each["kind"] == "RayCluster":
            yield from _ray_pods(where, each["metadata"]["name"], spec)
        if each["kind"] == "RayJob":
            yield from _ray_pods(where, "drawn-by-the-operator", spec["rayClusterSpec"])
            yield _pod(f"{where} submitter", spec["submitterPodTemplate"])


def _pod(where: str, template: Object, **labels: str) -> Pod:
    return Pod(where, {**template["metadata"]["labels"], **labels}, template["spec"])


def _ray_pods(where: str, cluster: str, spec: Object) -> Iterator[Pod]:
    operator = {"ray.io/cluster": cluster}  # labels that KubeRay adds itself
    yield _pod(f"{where} head", spec["headGroupSpec"]["template"], **operator, **{"ray.io/node-type": "head"})
    for group in spec["workerGroupSpecs"]:
        yield _pod(f"{where} {group['groupName']}", group["template"], **operator, **{"ray.io/node-type": "worker"})


def environment_of(objects: list[Object]) -> dict[str, str]:
    return only(objects, "ConfigMap", "rayctsl-environment")["data"]


def command_lines(objects: list[Object]) -> Iterator[tuple[str, list[str]]]:
    """Every `python -m …` in the manifests, its variables filled in."""
    environment = environment_of(objects)
    for each in objects:
        if each["kind"] == "RayJob":
            words = shlex.split(string.Template(each["spec"]["entrypoint"]).substitute(environment))
            lines = words[2].split("||") if words[:2] == ["bash", "-c"] else [shlex.join(words)]
            for line in lines:
                yield f"RayJob/{each['metadata']['name']}", shlex.split(line)
    for pod in pods_of(objects):
        for container in pod.containers:
            words = [*container.get("command", []), *container.get("args", [])]
            for name, value in environment.items():
                words = [word.replace(f"$({name})", value) for word in words]
            if words[:2] == ["python", "-m"]:
                yield pod.where, words


@functools.cache
def kuberay_schema(kind: str) -> Object:
    """The v1 schema of RayCluster or RayJob, so strict that an unknown field is an error."""
    text = (CRDS / f"{kind.lower()}s.yaml").read_text()
    versions = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]["versions"]
    (schema,) = [each["schema"]["openAPIV3Schema"] for each in versions if each["name"] == "v1"]
    return strict(schema)


KEPT = ("type", "enum", "pattern", "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength")


def strict(schema: Object) -> Object:
    """OpenAPI as Kubernetes writes it -> JSON schema. The API server would drop unknown fields in silence."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {}
    result = {key: schema[key] for key in KEPT if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"], **{key: schema[key] for key in ("pattern",) if key in schema}}
    if "items" in schema:
        result["items"] = strict(schema["items"])
    if "properties" in schema:
        properties = schema["properties"]
        result["properties"] = {name: strict(value) for name, value in properties.items()}
        result["required"] = [name for name in schema.get("required", []) if "default" not in properties.get(name, {})]
        result["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = strict(schema["additionalProperties"])
    if schema.get("nullable") and "type" in result:
        result["type"] = [result["type"], "null"]
    return result
