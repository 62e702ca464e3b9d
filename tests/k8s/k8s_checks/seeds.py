"""Seeded mistakes: what one is, and how to get at the parts of rendered manifests to make it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from k8s_checks.manifests import Object, only

Objects = list[Object]


class Mistake(NamedTuple):
    """What goes wrong, the rule that sees it, a part of what it says, and how it is made."""

    what: str
    rule: str
    says: str
    make: Callable[[Objects], Any]
    overlay: str = "production"


def spec(objects: Objects, kind: str, name: str | None = None) -> Object:
    found: Object = only(objects, kind, name)["spec"]
    return found


def policy(objects: Objects, name: str) -> Object:
    return spec(objects, "NetworkPolicy", name)


def service(objects: Objects) -> Object:
    found: Object = spec(objects, "Deployment")["template"]["spec"]
    return found


def store(objects: Objects, name: str) -> Object:
    found: Object = spec(objects, "StatefulSet", f"rayctsl-{name}")["template"]["spec"]["containers"][0]
    return found


def head(objects: Objects) -> Object:
    found: Object = spec(objects, "RayCluster")["headGroupSpec"]["template"]["spec"]
    return found


def group(objects: Objects, name: str) -> Object:
    (found,) = [each for each in spec(objects, "RayCluster")["workerGroupSpecs"] if each["groupName"] == name]
    return found


def worker(objects: Objects, name: str = "cpu") -> Object:
    found: Object = group(objects, name)["template"]["spec"]
    return found


def argument(container: Object, old: str, new: str) -> None:
    """Replace a part of the arguments that must be there."""
    changed = [word.replace(old, new) for word in container["args"]]
    assert changed != container["args"]
    container["args"] = changed


def variable(container: Object, name: str) -> Object:
    (found,) = [entry for entry in container["env"] if entry["name"] == name]
    return found


def entry_point(objects: Objects, old: str, new: str) -> None:
    job = spec(objects, "RayJob", "train")
    assert old in job["entrypoint"]
    job["entrypoint"] = job["entrypoint"].replace(old, new)


def volume(pod: Object, name: str) -> Object:
    (found,) = [each for each in pod["volumes"] if each["name"] == name]
    return found


def privileged_init(objects: Objects) -> None:
    context = {"privileged": True, "runAsUser": 0}
    resources = service(objects)["containers"][0]["resources"]
    init = {"name": "chown", "image": "rayctsl:0.1.0-ray2.60.0", "securityContext": context, "resources": resources}
    service(objects)["initContainers"] = [init]
