"""Experiment trackers: where a run's numbers go besides its own folder.

One small interface; the config has a line for each (`tensorboard`, `wandb`, `mlflow`). Where their servers are, and
whether to use one at all, is said by their own environment variables (WANDB_MODE, MLFLOW_TRACKING_URI, …).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Protocol

from rayctsl.config import Config
from rayctsl.storage import Storage


class Tracker(Protocol):
    """Takes the numbers of steps, in order."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def open_trackers(storage: Storage, config: Config) -> list[Tracker]:
    """The trackers that a config asks for; TensorBoard by itself where it is installed and the folder is local."""
    trackers: list[Tracker] = []
    installed = find_spec("tensorboard") is not None
    if config.tensorboard or (config.tensorboard is None and installed and storage.local):
        trackers.append(TensorBoard(storage))
    if config.wandb is not None:
        trackers.append(WandB(storage, config))
    if config.mlflow is not None:
        trackers.append(MlFlow(config))
    return trackers


def finite(values: Mapping[str, object]) -> dict[str, float]:
    """What a tracker can draw."""
    return {name: value for name, value in values.items() if isinstance(value, float) and math.isfinite(value)}


class TensorBoard:
    """Event files in the run folder: `tensorboard --logdir runs`."""

    def __init__(self, storage: Storage):
        if not storage.local:
            raise ValueError("TensorBoard files need a local run folder: leave out tensorboard")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("tensorboard: true needs the package: pip install 'rayctsl[tensorboard]'") from None
        self._writer = SummaryWriter(f"{storage.root}/tensorboard")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A run of Weights & Biases, in the project that `wandb` names."""

    def __init__(self, storage: Storage, config: Config):
        try:
            import wandb
        except ImportError:
            raise ValueError("wandb needs the package: pip install 'rayctsl[wandb]'") from None
        folder = storage.root if storage.local else None
        settings = wandb.Settings(silent=True, console="off")
        content = config.model_dump(mode="json")
        self._run = wandb.init(project=config.wandb, dir=folder, config=content, settings=settings, reinit="create_new")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def flush(self) -> None:
        """It sends by itself."""

    def close(self) -> None:
        self._run.finish()


class MlFlow:
    """A run of MLflow, in the experiment that `mlflow` names."""

    def __init__(self, config: Config):
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise ValueError("mlflow needs the package: pip install 'rayctsl[mlflow]'") from None
        assert config.mlflow is not None
        self._client = MlflowClient()
        known = self._client.get_experiment_by_name(config.mlflow)
        experiment = known.experiment_id if known else self._client.create_experiment(config.mlflow)
        self._id = self._client.create_run(experiment).info.run_id
        for name in ("seed", "inner_steps", "trajectories"):
            self._client.log_param(self._id, name, getattr(config, name))
        self._client.log_param(self._id, "method", config.method.name)
        self._client.log_param(self._id, "beta", config.method.beta)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            # A file store makes folders of slashes, and `loss` is a file there already.
            self._client.log_metric(self._id, name.replace("/", "."), value, step=step)

    def flush(self) -> None:
        """Every number is written at once."""

    def close(self) -> None:
        self._client.set_terminated(self._id)
