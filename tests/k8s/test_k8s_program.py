"""Every command line, variable, port, path and config file in the manifests is one that the program really has."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
Object = dict[str, Any]

# Read by others than the program: each with the reader.
FOREIGN_VARIABLES = {
    "AWS_REGION": "the AWS SDK in pyarrow",
    "PGPASSWORD": "libpq",
    "PGDATA": "the postgres image",
    "POSTGRES_USER": "the postgres image",
    "POSTGRES_DB": "the postgres image",
    "POSTGRES_PASSWORD": "the postgres image",
    "REDIS_PASSWORD": "the redis container's own arguments",
}


def parse(words: list[str]) -> Any:
    """The program's own parser on a command line, or SystemExit."""
    import rayctsl.commands.train
    import rayctsl.commands.tune
    import serve.__main__

    parsers = {
        "rayctsl.train": rayctsl.train.parser,
        "rayctsl.tune": rayctsl.tune.parser,
        "serve": serve.__main__.build_parser,
    }
    assert words[:2] == ["python", "-m"]
    return parsers[words[2]]().parse_args(words[3:])


def test_every_command_line_parses(objects: list[Object], manifests: ModuleType) -> None:
    lines = list(manifests.command_lines(objects))
    assert sorted(words[2] for _, words in lines) == ["rayctsl.train", "rayctsl.tune", "serve"]
    for _, words in lines:
        assert not any("$" in word for word in words)
        parse(words)


def test_a_renamed_flag_would_be_seen(everything: list[Object], manifests: ModuleType) -> None:
    for _, words in manifests.command_lines(everything):
        with pytest.raises(SystemExit):
            parse([*words, "--no-such-flag"])


def mounted_configs(pod: Any, objects: list[Object], manifests: ModuleType) -> dict[str, str]:
    """Path in the container -> text, for every file of a ConfigMap that a pod mounts."""
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    files = {}
    for mount in pod.containers[0]["volumeMounts"]:
        source = volumes[mount["name"]].get("configMap")
        if source:
            data = manifests.only(objects, "ConfigMap", source["name"])["data"]
            if "subPath" in mount:
                files[mount["mountPath"]] = data[mount["subPath"]]
            else:
                files |= {f"{mount['mountPath']}/{name}": text for name, text in data.items()}
    return files


def test_config_maps_are_the_config_files(objects: list[Object], manifests: ModuleType) -> None:
    here = {
        f"/etc/rayctsl/{path.relative_to(ROOT / 'configs')}": path.read_text()
        for path in (ROOT / "configs").rglob("*.yaml")
        if path.name != "kustomization.yaml" and path.parent.name not in ("suites", "synthetic")  # for experiments
    }
    ray = [pod for pod in manifests.pods_of(objects) if "ray-worker" in pod.labels["app.kubernetes.io/component"]]
    assert len(ray) >= 3
    for pod in ray:
        assert mounted_configs(pod, objects, manifests) == here


def test_runs_start_from_configs_that_load(objects: list[Object], manifests: ModuleType, tmp_path: Path) -> None:
    from rayctsl.command import overrides_of
    from rayctsl.config import load_config
    from rayctsl.sweeps.config import load_sweep

    worker = next(pod for pod in manifests.pods_of(objects) if pod.where == "RayCluster/rayctsl cpu")
    for name, text in mounted_configs(worker, objects, manifests).items():
        target = tmp_path / PurePosixPath(name).relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    runs = []
    for _, words in manifests.command_lines(objects):
        arguments = parse(words)
        if words[2] == "rayctsl.train":
            config = load_config(tmp_path / arguments.config[1:], overrides_of(arguments))
            assert arguments.address == "auto"
            assert arguments.resume_if_exists
            assert config.topology.wait_seconds > 0  # the autoscaler needs its time
            assert config.topology.workers is not None  # a cluster scaled to nothing says nothing about what it can run
            assert config.topology.meta_resources == {"coordinator": 1}  # the meta-learner stays where nodes stay
            _check_room(config, manifests.only(objects, "RayCluster")["spec"]["workerGroupSpecs"])
            runs.append(arguments.run_dir)
        elif words[2] == "rayctsl.tune":
            assert arguments.address == "auto"
            assert arguments.resume_if_exists
            load_sweep(tmp_path / arguments.config[1:])
            runs.append(arguments.run_dir)
            assert arguments.storage == manifests.environment_of(objects)["RAYCTSL_STORAGE"]
    assert len(set(runs)) == 2


def test_the_service_finds_what_training_leaves(objects: list[Object], manifests: ModuleType, tmp_path: Path) -> None:
    from rayctsl.registry import list_initializations
    from serve.bench.instance import make_initialization

    made = make_initialization(tmp_path / "elsewhere")
    (train,) = [words for _, words in manifests.command_lines(objects) if words[2] == "rayctsl.train"]
    storage = manifests.environment_of(objects)["RAYCTSL_STORAGE"]
    run = parse(train).run_dir.removeprefix(f"{storage}/")
    assert run not in ("jobs", "workers", "service", "initializations")  # the service's own folders
    (tmp_path / "storage" / run).mkdir(parents=True)
    Path(made.storage.base).rename(tmp_path / "storage" / run / "initialization")
    assert [each.id for each in list_initializations(str(tmp_path / "storage"))] == [made.id]


def _check_room(config: Any, groups: list[Object]) -> None:
    """At its largest the cluster can hold every learner."""
    room = 0.0
    for group in groups:
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        fits = [float(limits["cpu"]) // config.topology.cpus_per_learner]
        if config.topology.gpus_per_learner:
            fits.append(float(limits.get("nvidia.com/gpu", 0)) // config.topology.gpus_per_learner)
        room += group["maxReplicas"] * min(fits)
    assert room >= config.topology.workers


def program_variables() -> set[str]:
    """The environment variables that rayctsl and serve read."""
    pattern = re.compile(r"environ(?:\.get\(|\.setdefault\(|\[)\s*\"(\w+)\"")
    sources = [*(ROOT / "rayctsl").rglob("*.py"), *(ROOT / "serve").rglob("*.py")]
    return {name for path in sources for name in pattern.findall(path.read_text())}


def ray_reads(variable: str) -> bool:
    import ray

    folder = Path(ray.__file__).parent
    sources = [
        path for part in ("_private", "_common", "dashboard/modules/job") for path in (folder / part).rglob("*.py")
    ]
    return any(variable in path.read_text() for path in sources)


def test_every_variable_has_a_reader(everything: list[Object], manifests: ModuleType) -> None:
    used = set(manifests.environment_of(everything))
    for pod in manifests.pods_of(everything):
        for container in pod.containers:
            used |= {entry["name"] for entry in container.get("env", [])}
    known = program_variables()
    assert {"RAYCTSL_TOKEN", "RAYCTSL_STORAGE", "RAYCTSL_DATA", "RAY_AUTH_TOKEN_PATH"} <= known
    unread = {name for name in used - known - set(FOREIGN_VARIABLES) if not ray_reads(name)}
    assert unread == set()
    assert not ray_reads("RAY_JOB_STRAT_TIMEOUT_SECONDS")


def test_dockerfile_sets_only_known_variables() -> None:
    text = (ROOT / "k8s" / "Dockerfile").read_text()
    names = re.findall(r"(\w+)=", " ".join(re.findall(r"^ENV (.*)$", text, re.MULTILINE)))
    assert set(names) <= {
        "PATH",
        "PIP_NO_CACHE_DIR",
        "PIP_DISABLE_PIP_VERSION_CHECK",
        "PYTHONUNBUFFERED",
        "RAY_USAGE_STATS_ENABLED",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
    }


def test_service_reaches_ray_and_answers_its_probes(
    objects: list[Object], manifests: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serve.app import create_app
    from serve.settings import Settings

    deployment = manifests.only(objects, "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    (words,) = [words for _, words in manifests.command_lines(objects) if words[2] == "serve"]
    options = parse(words)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert options.port == ports["http"]
    cluster = manifests.only(objects, "RayCluster")
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    dashboard = {port["name"]: port["containerPort"] for port in head["ports"]}["dashboard"]
    assert options.address == f"http://{cluster['metadata']['name']}-head-svc:{dashboard}"

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    settings = Settings(storage=str(tmp_path), host=options.host, token="t" * 32, address=options.address)
    app = create_app(settings)
    routes = set(app.openapi()["paths"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in routes
        assert container[probe]["httpGet"]["port"] in ports
    monitors = [each for each in objects if each["kind"] == "ServiceMonitor"]
    service = manifests.only(objects, "Service", "rayctsl")
    for monitor in monitors:
        assert monitor["spec"]["endpoints"][0]["path"] in routes
        assert monitor["spec"]["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert "/no-such-path" not in routes
    app.state.service.store.close()


def test_paths_in_commands_are_mounted(objects: list[Object], manifests: ModuleType) -> None:
    environment = manifests.environment_of(objects)
    for pod in manifests.pods_of(objects):
        for container in pod.containers:
            mounts = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            reads = [entry.get("value", "") for entry in container.get("env", [])]
            if container["name"] in ("service", "ray-worker"):
                reads += environment.values()
            for word in reads + [word.partition("sqlite:///")[2] for word in container.get("args", [])]:
                if word.startswith("/"):
                    assert any(word.startswith(f"{mount}/") or word == mount for mount in mounts), (pod.where, word)


def test_ray_start_parameters_exist(objects: list[Object], manifests: ModuleType) -> None:
    from ray.scripts.scripts import start

    flags = {flag.removeprefix("--") for parameter in start.params for flag in parameter.opts}
    for each in objects:
        if each["kind"] == "RayCluster":
            spec = each["spec"]
            for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
                assert set(group["rayStartParams"]) <= flags


def test_yaml_files_have_no_double_keys() -> None:
    """PyYAML takes the last of two equal keys in silence, and so may an API server."""

    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Any:
        keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{keys} at {node.start_mark}"
        return loader.construct_mapping(node, deep=True)

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    for path in (ROOT / "k8s").rglob("*.yaml"):
        list(yaml.load_all(path.read_text(), Loader=Strict))
