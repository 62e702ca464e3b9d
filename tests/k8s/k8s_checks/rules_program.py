"""Rules: every command line, variable, port, path and dataset in the manifests is one that the program really has."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from k8s_checks.manifests import (
    ROOT,
    Object,
    command_lines,
    environment_of,
    mounted_configs,
    of_kind,
    only,
    pod,
    pods_of,
)
from k8s_checks.operator import Pod, node_resources
from k8s_checks.program import has_reader, parse, routes
from k8s_checks.rules_names import clusters_of

OURS = {"service", "ray-head", "ray-worker", "ray-job-submitter", "prepare", "wait-for-data"}
NEEDED = {"RAYCTSL_STORAGE", "RAYCTSL_DATA", "RAYCTSL_CACHE"}


def variables_of(container: Object, objects: list[Object]) -> dict[str, Object]:
    """Name -> entry of everything in a container's environment."""
    given: dict[str, Object] = {}
    for source in container.get("envFrom", []):
        data = only(objects, "ConfigMap", source["configMapRef"]["name"])["data"]
        given |= {name: {"value": value} for name, value in data.items()}
    return given | {entry["name"]: entry for entry in container.get("env", [])}


def service_container(objects: list[Object]) -> Object:
    found: Object = pod(objects, "Deployment/rayctsl-service").spec["containers"][0]
    return found


def service_options(objects: list[Object]) -> dict[str, str]:
    (words,) = [words for where, words in command_lines(objects) if where == "Deployment/rayctsl-service"]
    return {name: str(value) for name, value in vars(parse(words)).items()}


def commands_are_understood(objects: list[Object]) -> Iterator[str]:
    for where, words in command_lines(objects):
        if any("$" in word for word in words):
            yield f"{where}: a variable has no value in {words}"
        try:
            parse(words)
        except ValueError as error:
            yield f"{where}: {error}"


def variables_have_readers(objects: list[Object]) -> Iterator[str]:
    for each in pods_of(objects):
        for container in each.containers:
            for name in variables_of(container, objects):
                if not has_reader(name):
                    yield f"{each.where}: nobody reads {name}"


def programs_have_their_variables(objects: list[Object]) -> Iterator[str]:
    for each in pods_of(objects):
        for container in each.containers:
            missing = NEEDED - set(variables_of(container, objects))
            if container["name"] in OURS and missing:
                yield f"{each.where}, {container['name']}: {sorted(missing)} missing"
    token = variables_of(service_container(objects), objects).get("RAYCTSL_TOKEN", {})
    if "secretKeyRef" not in token.get("valueFrom", {}):
        yield "the service has no token"


def service_listens_where_it_is_asked(objects: list[Object]) -> Iterator[str]:
    container, options = service_container(objects), service_options(objects)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    if options["port"] != str(ports.get("http")) or options["host"] != "0.0.0.0":
        yield f"the service listens at {options['host']}:{options['port']}, its port is {ports}"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        if asked["path"] not in routes() or asked["port"] not in ports:
            yield f"{probe} asks for {asked}"
    for each in of_kind(objects, "ServiceMonitor"):
        yield from (f"no route {e['path']}" for e in each["spec"]["endpoints"] if e["path"] not in routes())


def service_reaches_ray_with_its_token(objects: list[Object]) -> Iterator[str]:
    cluster, container = only(objects, "RayCluster"), service_container(objects)
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    dashboard = {port["name"]: port["containerPort"] for port in head["ports"]}.get("dashboard")
    address = f"http://{cluster['metadata']['name']}-head-svc:{dashboard}"
    if service_options(objects)["address"] != address:
        yield f"the service looks for Ray at {service_options(objects)['address']}, not at {address}"
    given = variables_of(container, objects)
    if given.get("RAY_AUTH_MODE", {}).get("value") != "token":
        yield "the service shows Ray no token"
    volumes = {volume["name"]: volume for volume in pod(objects, "Deployment/rayctsl-service").spec["volumes"]}
    secret = cluster["spec"]["authOptions"].get("secretName")
    files = {
        f"{mount['mountPath']}/auth_token"
        for mount in container["volumeMounts"]
        if volumes[mount["name"]].get("secret", {}).get("secretName") == secret
    }
    if given.get("RAY_AUTH_TOKEN_PATH", {}).get("value") not in files:
        yield f"RAY_AUTH_TOKEN_PATH is none of {sorted(files)}"


def service_reaches_its_database(objects: list[Object]) -> Iterator[str]:
    url, deployment = urlsplit(service_options(objects)["database"]), only(objects, "Deployment")["spec"]
    if url.scheme == "sqlite":
        if deployment["replicas"] != 1 or deployment["strategy"] != {"type": "Recreate"}:
            yield "two processes may have the SQLite file open"
        return
    store = pod(objects, "StatefulSet/rayctsl-postgres").spec["containers"][0]
    given, server = variables_of(service_container(objects), objects), variables_of(store, objects)
    known = {(s["metadata"]["name"], p["port"]) for s in of_kind(objects, "Service") for p in s["spec"]["ports"]}
    if (url.hostname, url.port) not in known:
        yield f"no Service answers at {url.hostname}:{url.port}"
    if (url.username, url.path) != (server["POSTGRES_USER"]["value"], f"/{server['POSTGRES_DB']['value']}"):
        yield "the database or its user has another name"
    password = server.get("POSTGRES_PASSWORD", {}).get("valueFrom")
    if password is None or given.get("PGPASSWORD", {}).get("valueFrom") != password:
        yield "the service does not have the database's password in PGPASSWORD"
    if deployment["replicas"] < 2 or deployment["strategy"]["type"] != "RollingUpdate":
        yield "a database server, and yet one replica"


def ray_reaches_its_redis(objects: list[Object]) -> Iterator[str]:
    options = only(objects, "RayCluster")["spec"].get("gcsFaultToleranceOptions")
    if options is None:
        return
    store = pod(objects, "StatefulSet/rayctsl-redis").spec["containers"][0]
    known = {f"{s['metadata']['name']}:{p['port']}" for s in of_kind(objects, "Service") for p in s["spec"]["ports"]}
    if options["redisAddress"] not in known:
        yield f"no Service answers at {options['redisAddress']}"
    password = variables_of(store, objects).get("REDIS_PASSWORD", {}).get("valueFrom")
    if password is None or options["redisPassword"]["valueFrom"] != password:
        yield "Ray has another password than Redis"
    if "$(REDIS_PASSWORD)" not in store["args"] or store["args"][store["args"].index("--appendonly") + 1] != "yes":
        yield "Redis asks for no password, or keeps no file"


def paths_are_mounted(objects: list[Object]) -> Iterator[str]:
    environment = environment_of(objects)
    for each in pods_of(objects):
        for container in each.containers:
            mounts = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            values = list(environment.values()) if container["name"] in OURS else []
            for place in values + re.findall(r"(?<=sqlite:///)/\S+", " ".join(container.get("args", []))):
                inside = any(f"{place}/".startswith(f"{mount}/") for mount in mounts)
                if place.startswith("/") and not inside:
                    yield f"{each.where}, {container['name']}: {place} is not mounted"


def configs_are_the_repositorys(objects: list[Object]) -> Iterator[str]:
    folders = [ROOT / "configs" / name for name in ("paper/image", "paper/imagenet", "sweeps")]
    files = [ROOT / "configs" / "demo.yaml", *(path for folder in folders for path in folder.glob("*.yaml"))]
    here = {f"/etc/rayctsl/{path.relative_to(ROOT / 'configs')}": path.read_text() for path in files}
    here["/etc/rayctsl/scripts/attempt.sh"] = (ROOT / "k8s/base/scripts/attempt.sh").read_text()
    for each in pods_of(objects):
        if each.component in ("ray-head", "ray-worker") and mounted_configs(each, objects) != here:
            yield f"{each.where}: /etc/rayctsl does not hold the files of configs/"


def configs_of(worker: Pod, objects: list[Object], folder: Path) -> None:
    for name, text in mounted_configs(worker, objects).items():
        target = folder / PurePosixPath(name).relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def runs_can_start(objects: list[Object]) -> Iterator[str]:
    """Their configs load, they wait for nodes, continue where they were, and the cluster at its largest has room."""
    from rayctsl.command import overrides_of
    from rayctsl.config import load_config

    with tempfile.TemporaryDirectory() as folder:
        configs_of(pod(objects, "RayCluster/rayctsl cpu"), objects, Path(folder))
        for where, words in command_lines(objects):
            if not where.startswith("RayJob/") or words[2] not in ("rayctsl.train", "rayctsl.tune"):
                continue
            arguments = parse(words)
            config = Path(folder) / arguments.config[1:]
            if not (arguments.address == "auto" and arguments.resume_if_exists and config.is_file()):
                yield f"{where}: not on its cluster, not resumed, or no config {arguments.config}"
            elif words[2] == "rayctsl.train":
                groups = only(objects, "RayJob", where.partition("/")[2])["spec"]["rayClusterSpec"]["workerGroupSpecs"]
                topology = load_config(config, overrides_of(arguments)).topology
                if not topology.wait_seconds or topology.meta_resources != {"coordinator": 1}:
                    yield f"{where} does not wait for nodes, or its meta-learner may be placed anywhere"
                if _room(topology.cpus_per_learner, topology.gpus_per_learner, groups) < (topology.workers or 10**6):
                    yield f"{where}: its cluster has no room for {topology.workers} learners"
            elif arguments.storage != environment_of(objects)["RAYCTSL_STORAGE"]:
                yield f"{where} publishes elsewhere than the service looks"


def _room(cpus: float, gpus: float | str, groups: list[Object]) -> float:
    room, gpus = 0.0, 0.0 if gpus == "auto" else float(gpus)  # auto: as many as there are, which may be none
    for group in groups:
        has = node_resources(group)
        fits = [has["CPU"] // cpus] + ([has.get("GPU", 0.0) // gpus] if gpus else [])
        room += group["maxReplicas"] * min(fits)
    return room


def data_is_prepared_and_waited_for(objects: list[Object]) -> Iterator[str]:
    """All datasets of a run's config are prepared by the Job and checked before the run is submitted."""
    from rayctsl.config import load_config
    from rayctsl.data.names import EMBEDDED_NAMES

    lines = [(where, words) for where, words in command_lines(objects) if words[2] in ("rayctsl.data", "rayctsl.train")]
    with tempfile.TemporaryDirectory() as folder:
        configs_of(pod(objects, "RayCluster/rayctsl cpu"), objects, Path(folder))
        for where, words in lines:
            if words[2] != "rayctsl.train":
                continue
            tasks = set(load_config(Path(folder) / parse(words).config[1:]).data.tasks)
            wanted = tasks - set(EMBEDDED_NAMES)  # those make themselves
            named = {line[3]: set(parse(line).names) for _, line in lines if line[2] == "rayctsl.data"}
            for step in ("prepare", "check"):
                if wanted and named.get(step) != wanted:
                    yield f"{where}: {step} names {sorted(named.get(step, set()) ^ wanted)} too many or too few"


def runs_lie_where_the_service_looks(objects: list[Object]) -> Iterator[str]:
    """Directly in the storage, in folders of their own that the service does not use itself."""
    folders: list[str] = []
    for where, words in command_lines(objects):
        if where.startswith("RayJob/") and words[2] in ("rayctsl.train", "rayctsl.tune"):
            folders.append(parse(words).run_dir.removeprefix(environment_of(objects)["RAYCTSL_STORAGE"] + "/"))
    for folder in folders:
        if "/" in folder or folder in ("jobs", "workers", "service", "initializations") or folders.count(folder) > 1:
            yield f"a run in {folder}: another's, or where the service does not look"


def ray_start_understands_its_parameters(objects: list[Object]) -> Iterator[str]:
    from ray.scripts.scripts import start

    flags = {flag.removeprefix("--") for parameter in start.params for flag in parameter.opts}
    for _, spec in clusters_of(objects):
        for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
            yield from (f"ray start has no --{name}" for name in set(group["rayStartParams"]) - flags)


def runs_are_created_on_purpose(objects: list[Object]) -> Iterator[str]:
    """Retries are few, a cluster that never comes up ends, and no manifest can suspend a run again."""
    for each in of_kind(objects, "RayJob"):
        name, spec = each["metadata"]["name"], each["spec"]
        if not 1 <= spec.get("backoffLimit", 0) <= 3 or not spec.get("preRunningDeadlineSeconds"):
            yield f"{name}: too many attempts, or no end to waiting for a cluster"
        if spec.get("submissionMode") != "K8sJobMode":  # kuberay#4945: a run in SidecarMode may hang
            yield f"{name} is submitted in another way than was rehearsed"
        if "suspend" in spec:
            yield f"{name} would be suspended when it is applied again"
        if not spec["entrypoint"].startswith("bash /etc/rayctsl/scripts/attempt.sh python -m "):
            yield f"{name} is tried again when its input is bad"
    for each in of_kind(objects, "Job"):
        rules = each["spec"].get("podFailurePolicy", {}).get("rules", [])
        names = {container["name"] for container in each["spec"]["template"]["spec"]["containers"]}
        on_bad_input = [rule["onExitCodes"] for rule in rules if rule["action"] == "FailJob"]
        if not any(rule["values"] == [2] and rule["containerName"] in names for rule in on_bad_input):
            yield f"{each['metadata']['name']} is tried again when its input is bad"
