"""What comes with the package: there, whole, small, and with the command that made it."""

from __future__ import annotations

import pytest

from rayctsl.commands import zoo as command
from rayctsl.registry import list_initializations, open_initialization, stock
from rayctsl.zoo import ZOO, zoo_folder


@pytest.mark.parametrize("name", ZOO)
def test_each_is_whole_and_made_by_its_config(name):
    made = open_initialization(f"zoo/{name}")
    assert sum(value.numel() for value in made.phi().values()) == made.card.num_parameters  # and the sha256 is right
    config = command.config_of(name)
    assert (made.card.tasks, made.card.model) == (config.data.tasks, config.model)
    assert (made.card.inner_steps, made.card.trajectories) == (config.inner_steps, config.trajectories)
    assert made.card.metrics["command"] == f"rayctsl train --config configs/zoo/{name}.yaml"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ZOO)
def test_made_again_it_is_the_same_to_the_bit(name, tmp_path):
    shipped = open_initialization(f"zoo/{name}").card
    assert command.main(["build", name, "--out", str(tmp_path / "zoo"), "--runs", str(tmp_path / "runs")]) == 0
    made = open_initialization(tmp_path / "zoo" / name).card
    if made.versions == shipped.versions:  # another processor or torch rounds differently
        assert made.sha256 == shipped.sha256
    assert made.metrics["final_loss"] == pytest.approx(shipped.metrics["final_loss"], rel=0.1)


def test_an_empty_storage_is_stocked_and_another_left_alone(tmp_path):
    assert [made.path.rpartition("/")[2] for made in stock(str(tmp_path))] == [
        open_initialization(f"zoo/{name}").id for name in ZOO
    ]
    assert len(list_initializations(str(tmp_path))) == len(ZOO)
    assert stock(str(tmp_path)) == []
    (tmp_path / "own/run/initialization").mkdir(parents=True)
    (tmp_path / "own/run/initialization/card.json").write_text("damaged, but somebody's")
    assert stock(str(tmp_path / "own")) == []


def test_cards_say_how_they_may_be_used():
    assert {open_initialization(f"zoo/{name}").card.licence for name in ZOO} == {"apache-2.0"}


def test_all_of_it_is_small():
    files = [path for name in ZOO for path in zoo_folder(name).iterdir()]
    assert sum(path.stat().st_size for path in files) < 600_000


def test_the_command_lists_them_and_unknown_ones_are_refused(capsys):
    assert command.main([]) == 0
    assert "zoo/glyphs" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"the zoo has no 'glyph'; did you mean 'glyphs'\?"):
        open_initialization("zoo/glyph")
