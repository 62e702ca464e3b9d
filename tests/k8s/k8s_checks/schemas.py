"""KubeRay's definitions (tests/assets/kuberay) as JSON schemas so strict that an unknown field is an error."""

from __future__ import annotations

import functools
import gzip
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from k8s_checks.manifests import ROOT, Object

CRDS = ROOT / "tests" / "assets" / "kuberay"
KUBERNETES = "1.34"
KEPT = ("type", "enum", "pattern", "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength")
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def check(each: Object) -> None:
    """Raises jsonschema.ValidationError or kubernetes_validate.ValidationError."""
    group = each["apiVersion"].partition("/")[0]
    if group == "ray.io":
        validator_of(each["kind"]).validate(each)
    elif group in OTHERS:
        jsonschema.validate(each, OTHERS[group][each["kind"]])
    else:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)


@functools.cache
def validator_of(kind: str) -> jsonschema.Draft202012Validator:
    """The v1 schema of RayCluster or RayJob."""
    text = gzip.decompress((CRDS / f"{kind.lower()}s.yaml.gz").read_bytes())
    versions = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]["versions"]
    (schema,) = [each["schema"]["openAPIV3Schema"] for each in versions if each["name"] == "v1"]
    return jsonschema.Draft202012Validator(strict(schema))


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


def shape(required: tuple[str, ...] = (), **properties: Any) -> Object:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def many(item: Object) -> Object:
    return {"type": "array", "items": item, "minItems": 1}


def kind(spec: Object) -> Object:
    return shape(("apiVersion", "kind", "metadata", "spec"), apiVersion=TEXT, kind=TEXT, metadata={}, spec=spec)


# The parts in use of two APIs whose whole definitions are not kept here: Gateway API v1 (apis/v1/httproute_types.go)
# and the Prometheus operator's v1 (pkg/apis/monitoring/v1).
SELECTOR = shape(matchLabels={"type": "object"})
ENDPOINT = {"port": TEXT, "interval": {"type": "string", "pattern": r"^\d+s$"}}
RELABELING = shape(action={"enum": ["replace"]}, sourceLabels=many(TEXT), targetLabel=TEXT)
KEY = shape(("name", "key"), name=TEXT, key=TEXT)
RULE = shape(("alert", "expr"), alert=TEXT, expr=TEXT, labels={}, annotations={}, **{"for": TEXT})
MATCH = shape(path=shape(type={"enum": ["PathPrefix"]}, value=TEXT))
BACKEND = shape(("name", "port"), name=TEXT, port=NUMBER)
OTHERS: dict[str, dict[str, Object]] = {
    "gateway.networking.k8s.io": {
        "HTTPRoute": kind(
            shape(
                parentRefs=many(shape(("name",), name=TEXT, namespace=TEXT)),
                hostnames=many(TEXT),
                rules=many(shape(matches=many(MATCH), backendRefs=many(BACKEND))),
            )
        )
    },
    "monitoring.coreos.com": {
        "ServiceMonitor": kind(
            shape(
                ("selector", "endpoints"),
                selector=SELECTOR,
                endpoints=many(shape(path=TEXT, authorization=shape(credentials=KEY), **ENDPOINT)),
            )
        ),
        "PodMonitor": kind(
            shape(
                ("selector", "podMetricsEndpoints"),
                selector=SELECTOR,
                podMetricsEndpoints=many(shape(relabelings=many(RELABELING), **ENDPOINT)),
            )
        ),
        "PrometheusRule": kind(shape(groups=many(shape(("name", "rules"), name=TEXT, rules=many(RULE))))),
    },
}
