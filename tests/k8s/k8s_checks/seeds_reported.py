"""Mistakes that an operator seeded, and which the tests of that time saw or missed."""

from __future__ import annotations

from k8s_checks.manifests import only
from k8s_checks.seeds import (
    Mistake,
    argument,
    entry_point,
    policy,
    privileged_init,
    service,
    spec,
    store,
    variable,
    worker,
)

REPORTED = (
    Mistake(
        "policy port 8080",
        "what_must_connect_can",
        "edge cannot reach Deployment/rayctsl-service",
        lambda o: policy(o, "service")["ingress"][0]["ports"][0].update(port=8080),
    ),
    Mistake(
        "policy port nobody has",
        "policy_ports_are_listened_at",
        "nobody listens at 8080",
        lambda o: policy(o, "service")["ingress"][0]["ports"][0].update(port=8080),
    ),
    Mistake(
        "targetPort https",
        "services_lead_to_a_port",
        "has no port https",
        lambda o: spec(o, "Service", "rayctsl")["ports"][0].update(targetPort="https"),
    ),
    Mistake(
        "token path",
        "service_reaches_ray_with_its_token",
        "RAY_AUTH_TOKEN_PATH",
        lambda o: variable(service(o)["containers"][0], "RAY_AUTH_TOKEN_PATH").update(value="/etc/ray/auth_token"),
    ),
    Mistake(
        "operator namespace",
        "what_must_connect_can",
        "operator cannot reach",
        lambda o: policy(o, "ray-dashboard")["ingress"][0]["from"][1]["namespaceSelector"]["matchLabels"].update(
            {"kubernetes.io/metadata.name": "ray-system"}
        ),
    ),
    Mistake(
        "narrowed deny rule",
        "everything_is_closed_first",
        "no policy closes all pods",
        lambda o: policy(o, "deny-all").update(
            podSelector={"matchLabels": {"app.kubernetes.io/component": "ray-head"}}
        ),
    ),
    Mistake(
        "narrowed deny rule opens a store",
        "what_must_not_connect_cannot",
        "can reach Job/prepare-data",
        lambda o: policy(o, "deny-all").update(
            podSelector={"matchLabels": {"app.kubernetes.io/component": "ray-head"}}
        ),
    ),
    Mistake(
        "Service selects the head",
        "services_lead_to_a_port",
        "Service rayctsl leads to",
        lambda o: spec(o, "Service", "rayctsl")["selector"].update({"app.kubernetes.io/component": "ray-head"}),
    ),
    Mistake(
        "Redis volume at another path",
        "stores_keep_their_data_on_their_volume",
        "/data is lost with the pod",
        lambda o: store(o, "redis")["volumeMounts"][0].update(mountPath="/redis"),
    ),
    Mistake(
        "privileged",
        "pods_keep_to_the_restricted_standard",
        "it may gain rights",
        lambda o: service(o)["containers"][0]["securityContext"].update(privileged=True),
    ),
    Mistake(
        "root",
        "pods_keep_to_the_restricted_standard",
        "it runs as root",
        lambda o: service(o)["containers"][0]["securityContext"].update(runAsUser=0),
    ),
    Mistake(
        "root pod",
        "pods_keep_to_the_restricted_standard",
        "runs as root",
        lambda o: worker(o, "gpu")["securityContext"].update(runAsUser=0),
    ),
    Mistake(
        "privileged root init container",
        "pods_keep_to_the_restricted_standard",
        "chown: it may gain rights",
        privileged_init,
    ),
    Mistake(
        "PGPASSWORD under another name",
        "service_reaches_its_database",
        "PGPASSWORD",
        lambda o: variable(service(o)["containers"][0], "PGPASSWORD").update(name="POSTGRES_PASSWORD"),
    ),
    Mistake(
        "RAYCTSL_DATA removed",
        "programs_have_their_variables",
        "RAYCTSL_DATA",
        lambda o: only(o, "ConfigMap", "rayctsl-environment")["data"].pop("RAYCTSL_DATA"),
    ),
    Mistake(
        "--port",
        "service_listens_where_it_is_asked",
        "listens at 0.0.0.0:8001",
        lambda o: argument(service(o)["containers"][0], "--port=8000", "--port=8001"),
    ),
    Mistake(
        "--run-directory",
        "commands_are_understood",
        "does not understand",
        lambda o: entry_point(o, "--run-dir ", "--run-directory "),
    ),
    Mistake(
        "--job-gpus renamed",
        "commands_are_understood",
        "does not understand",
        lambda o: argument(service(o)["containers"][0], "--job-gpus", "--job-gpu-count"),
    ),
    Mistake(
        "secret key",
        "secrets_are_made_and_documented",
        "with the key tokens",
        lambda o: variable(service(o)["containers"][0], "RAYCTSL_TOKEN")["valueFrom"]["secretKeyRef"].update(
            key="tokens"
        ),
    ),
    Mistake(
        "policy label",
        "selectors_find_pods",
        "ray-nodes selects nothing",
        lambda o: policy(o, "ray-nodes")["podSelector"]["matchExpressions"][1].update(values=["ray-nodes"]),
    ),
    Mistake(
        "budget's selector",
        "budgets_guard_what_they_name",
        "budget ray-head guards []",
        lambda o: spec(o, "PodDisruptionBudget", "ray-head")["selector"]["matchLabels"].update(
            {"ray.io/cluster": "ray"}
        ),
    ),
    Mistake(
        "volume path",
        "paths_are_mounted",
        "/state/jobs.sqlite3 is not mounted",
        lambda o: [
            m.update(mountPath="/var/state")
            for m in service(o)["containers"][0]["volumeMounts"]
            if m["name"] == "state"
        ],
        "gpu",
    ),
    Mistake(
        "token's name",
        "programs_have_their_variables",
        "the service has no token",
        lambda o: variable(service(o)["containers"][0], "RAYCTSL_TOKEN").update(name="RAYCTSL_SERVICE_TOKEN"),
    ),
)
