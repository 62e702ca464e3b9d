"""Mistakes of one kind: a name that exists, in the wrong place. No schema can see those."""

from __future__ import annotations

from k8s_checks.manifests import only
from k8s_checks.seeds import (
    Mistake,
    argument,
    entry_point,
    group,
    head,
    policy,
    service,
    spec,
    store,
    variable,
    volume,
    worker,
)

MISPLACED = (
    Mistake(
        "account of the cluster's name",
        "accounts_do_not_share_a_clusters_name",
        "account rayctsl has the name",
        lambda o: only(o, "ServiceAccount")["metadata"].update(name="rayctsl"),
    ),
    Mistake(
        "account of the cluster's name: no token",
        "autoscaling_heads_have_a_token",
        "autoscaler of rayctsl has no token",
        lambda o: only(o, "ServiceAccount")["metadata"].update(name="rayctsl"),
    ),
    Mistake(
        "the pods' account on the head",
        "autoscaling_heads_have_a_token",
        "has no token",
        lambda o: head(o).update(serviceAccountName="rayctsl-pods"),
    ),
    Mistake(
        "runs share the service's Ray token",
        "every_cluster_has_a_ray_token_of_its_own",
        "share a Ray token",
        lambda o: spec(o, "RayJob", "train")["rayClusterSpec"]["authOptions"].update(secretName="rayctsl-ray-token"),
    ),
    Mistake(
        "the service's token as Ray's",
        "service_reaches_ray_with_its_token",
        "RAY_AUTH_TOKEN_PATH is none of []",
        lambda o: volume(service(o), "ray-token")["secret"].update(secretName="rayctsl-service-token"),
    ),
    Mistake(
        "Redis as the database's host",
        "service_reaches_its_database",
        "no Service answers at rayctsl-redis:5432",
        lambda o: argument(service(o)["containers"][0], "@rayctsl-postgres", "@rayctsl-redis"),
    ),
    Mistake(
        "PostgreSQL's password for Redis",
        "ray_reaches_its_redis",
        "another password than Redis",
        lambda o: spec(o, "RayCluster")["gcsFaultToleranceOptions"]["redisPassword"]["valueFrom"][
            "secretKeyRef"
        ].update(name="rayctsl-postgres"),
    ),
    Mistake(
        "the service's own Service as Ray's address",
        "service_reaches_ray_with_its_token",
        "looks for Ray at http://rayctsl:8265",
        lambda o: argument(service(o)["containers"][0], "rayctsl-head-svc", "rayctsl"),
    ),
    Mistake(
        "container's port in the HTTPRoute",
        "only_the_service_is_exposed",
        "'port': 8000",
        lambda o: spec(o, "HTTPRoute")["rules"][0]["backendRefs"][0].update(port=8000),
    ),
    Mistake(
        "PostgreSQL behind the HTTPRoute",
        "only_the_service_is_exposed",
        "rayctsl-postgres",
        lambda o: spec(o, "HTTPRoute")["rules"][0]["backendRefs"][0].update(name="rayctsl-postgres"),
    ),
    Mistake(
        "Ray's head behind the Ingress",
        "only_the_service_is_exposed",
        "rayctsl-head-svc",
        lambda o: spec(o, "Ingress")["rules"][0]["http"]["paths"][0]["backend"]["service"].update(
            name="rayctsl-head-svc"
        ),
        "gpu",
    ),
    Mistake(
        "drivers on GPU nodes",
        "drivers_stay_off_preemptible_nodes",
        "may be placed on ['cpu', 'gpu-spot']",
        lambda o: group(o, "gpu-spot").update(resources={"CPU": "3", "GPU": "1", "coordinator": "3"}),
    ),
    Mistake(
        "the gpu group on spot nodes",
        "only_the_spot_group_is_preemptible",
        "RayCluster/rayctsl gpu may be placed",
        lambda o: worker(o, "gpu").update(affinity=worker(o, "gpu-spot")["affinity"]),
    ),
    Mistake(
        "CPU image on a GPU node",
        "images_are_pinned",
        "a GPU with an image for CPUs",
        lambda o: worker(o, "gpu")["containers"][0].update(image=worker(o)["containers"][0]["image"]),
    ),
    Mistake(
        "heads watched at workers",
        "monitors_ask_ports_that_exist",
        "has no port as-metrics",
        lambda o: spec(o, "PodMonitor", "rayctsl-heads")["selector"]["matchLabels"].update(
            {"app.kubernetes.io/component": "ray-worker"}
        ),
    ),
    Mistake(
        "Prometheus sought where DNS is",
        "what_must_connect_can",
        "Prometheus cannot reach",
        lambda o: policy(o, "monitoring")["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"].update(
            {"kubernetes.io/metadata.name": "kube-system"}
        ),
    ),
    Mistake(
        "the bucket's policy without its exception",
        "nobody_reaches_further_than_needed",
        "the metadata address",
        lambda o: (
            policy(o, "bucket")["egress"][0]["to"][0]["ipBlock"].update(cidr="0.0.0.0/0", **{"except": []})
            or policy(o, "bucket")["egress"][0]["ports"][0].update(port=80)
        ),
    ),
    Mistake(
        "downloads for workers",
        "nobody_reaches_further_than_needed",
        "can reach the internet at 80",
        lambda o: policy(o, "downloads")["podSelector"]["matchLabels"].update(
            {"app.kubernetes.io/component": "ray-worker"}
        ),
    ),
    Mistake(
        "the API server for the service",
        "what_must_connect_can",
        "cannot reach API server",
        lambda o: policy(o, "api-server")["podSelector"]["matchLabels"].update(
            {"app.kubernetes.io/component": "service"}
        ),
    ),
    Mistake(
        "stores open to workers",
        "what_must_not_connect_cannot",
        "can reach StatefulSet/rayctsl-redis at 6379",
        lambda o: (policy(o, "redis")["ingress"][0].pop("from"), policy(o, "redis-clients").update(podSelector={})),
    ),
    Mistake(
        "sweeps' configs in the image folder",
        "configs_are_the_repositorys",
        "does not hold the files",
        lambda o: volume(worker(o), "configs-image")["configMap"].update(name="rayctsl-configs-sweeps"),
    ),
    Mistake(
        "the shared claim for the SQLite file",
        "config_maps_and_claims_exist",
        "rayctsl-state is defined and not used",
        lambda o: volume(service(o), "state")["persistentVolumeClaim"].update(claimName="rayctsl-artifacts"),
        "gpu",
    ),
    Mistake(
        "PostgreSQL's data in /tmp",
        "stores_keep_their_data_on_their_volume",
        "/tmp/18 is lost with the pod",
        lambda o: variable(store(o, "postgres"), "PGDATA").update(value="/tmp/18"),
    ),
    Mistake(
        "a dataset too few",
        "data_is_prepared_and_waited_for",
        "prepare names ['cub']",
        lambda o: spec(o, "Job")["template"]["spec"]["containers"][0]["args"].remove("cub"),
    ),
    Mistake(
        "waiting for other data",
        "data_is_prepared_and_waited_for",
        "check names",
        lambda o: argument(
            spec(o, "RayJob", "train")["submitterPodTemplate"]["spec"]["initContainers"][0], "svhn", "cifar10"
        ),
    ),
    Mistake(
        "twenty attempts",
        "runs_are_created_on_purpose",
        "too many attempts",
        lambda o: spec(o, "RayJob", "train").update(backoffLimit=20),
    ),
    Mistake(
        "the submitter beside the head",
        "runs_are_created_on_purpose",
        "submitted in another way",
        lambda o: spec(o, "RayJob", "train").update(submissionMode="SidecarMode"),
    ),
    Mistake(
        "a suspended sweep",
        "runs_are_created_on_purpose",
        "would be suspended",
        lambda o: spec(o, "RayJob", "sweep").update(suspend=True),
    ),
    Mistake(
        "bad input tried again",
        "runs_are_created_on_purpose",
        "tried again when its input is bad",
        lambda o: entry_point(o, "bash /etc/rayctsl/scripts/attempt.sh ", ""),
    ),
    Mistake(
        "failure policy of another container",
        "runs_are_created_on_purpose",
        "prepare-data is tried again",
        lambda o: spec(o, "Job")["podFailurePolicy"]["rules"][0]["onExitCodes"].update(containerName="wait-for-data"),
    ),
    Mistake(
        "learners before the service",
        "priorities_exist",
        "what stays must come before",
        lambda o: only(o, "PriorityClass", "rayctsl-work").update(value=200000),
    ),
    Mistake(
        "a head that may be moved",
        "what_must_stay_is_not_disrupted",
        "RayCluster/rayctsl head may be moved",
        lambda o: spec(o, "RayCluster")["headGroupSpec"]["template"]["metadata"].pop("annotations"),
    ),
    Mistake(
        "a probe at Ray's port",
        "service_listens_where_it_is_asked",
        "readinessProbe asks for",
        lambda o: service(o)["containers"][0]["readinessProbe"]["httpGet"].update(port="metrics"),
    ),
    Mistake(
        "the worker's CPUs on the head",
        "drivers_stay_off_preemptible_nodes",
        "work may be placed on the head",
        lambda o: spec(o, "RayCluster")["headGroupSpec"]["rayStartParams"].pop("num-cpus"),
    ),
    Mistake(
        "more learners than room",
        "runs_can_start",
        "no room for 80 learners",
        lambda o: entry_point(o, "--workers 8", "--workers 80"),
    ),
    Mistake(
        "cache not mounted",
        "programs_can_write_where_they_must",
        "HOME /cache cannot be written",
        lambda o: service(o)["containers"][0].update(
            volumeMounts=[m for m in service(o)["containers"][0]["volumeMounts"] if m["name"] != "cache"]
        ),
    ),
    Mistake(
        "the default storage class",
        "claims_name_their_class",
        "claim rayctsl-artifacts names no storage class",
        lambda o: spec(o, "PersistentVolumeClaim", "rayctsl-artifacts").pop("storageClassName"),
        "gpu",
    ),
    Mistake(
        "an 8-CPU worker",
        "pods_fit_a_common_node",
        "asks for 8.0 CPUs",
        lambda o: worker(o)["containers"][0]["resources"]["requests"].update(cpu="8"),
    ),
    Mistake(
        "killed while draining",
        "nodes_drain_before_they_are_killed",
        "is killed before it has drained",
        lambda o: worker(o, "gpu-spot").update(terminationGracePeriodSeconds=10),
    ),
)
