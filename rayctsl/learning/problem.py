"""What a run learns: its config and its tasks, in a form that can be sent to other processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rayctsl.config import Config
from rayctsl.data.library import Dataset
from rayctsl.learning.surroundings import open_data
from rayctsl.learning.tasks import ImageTask, ModelBuilder, Task, own_task
from rayctsl.methods import build_method


@dataclass(frozen=True)
class Problem:
    """What a run learns: the config, and its tasks by name. Can be sent to other processes."""

    config: Config
    task_names: tuple[str, ...]
    build_task: Callable[[str, str], Task]  # name, device -> task

    @classmethod
    def of(
        cls,
        config: Config,
        model: ModelBuilder | None = None,
        tasks: Mapping[str, Task | Dataset] | None = None,
    ) -> Problem:
        """The problem of a config; own models, own datasets and own tasks take the place of the config's."""
        if tasks is not None:
            config = config.model_copy(update={"data": config.data.model_copy(update={"tasks": tuple(tasks)})})
        method = build_method(config.method, config.seed)
        names = method.select_tasks(tuple(tasks) if tasks is not None else config.data.tasks)

        def build_task(name: str, device: str) -> Task:
            own = tasks[name] if tasks is not None else open_data(name, config)
            if not isinstance(own, Dataset):
                return own_task(own, device)
            own = replace(own, name=name)  # two tasks may share a dataset, or datasets a name
            return ImageTask(own, config, needs_held_out=method.needs_held_out, model=model, device=device)

        return cls(config, names, build_task)
