"""What comes with the package: there, whole, small, and with the command that made it."""

from __future__ import annotations

import pytest

from rayctsl.commands import zoo as command
from rayctsl.config import load_config
from rayctsl.registry import open_initialization
from rayctsl.zoo import ZOO, zoo_folder


@pytest.mark.parametrize("name", ZOO)
def test_each_is_whole_and_made_by_its_config(name):
    made = open_initialization(f"zoo/{name}")
    assert sum(value.numel() for value in made.phi().values()) == made.card.num_parameters  # and the sha256 is right
    config = load_config(command.CONFIGS / f"{name}.yaml")
    assert (made.card.tasks, made.card.model) == (config.data.tasks, config.model)
    assert (made.card.inner_steps, made.card.trajectories) == (config.inner_steps, config.trajectories)
    assert made.card.metrics["command"] == f"rayctsl train --config configs/zoo/{name}.yaml"


def test_all_of_it_is_small():
    files = [path for name in ZOO for path in zoo_folder(name).iterdir()]
    assert sum(path.stat().st_size for path in files) < 600_000


def test_the_command_lists_them_and_unknown_ones_are_refused(capsys):
    assert command.main([]) == 0
    assert "zoo/glyphs" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"the zoo has no 'glyph'; did you mean 'glyphs'\?"):
        open_initialization("zoo/glyph")
