"""torchvision's ResNets: sizes, and backbones from local files and from torchvision's cache."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from rayctsl.config import ModelConfig
from rayctsl.models import build_model
from rayctsl.torchvision_import import import_torchvision
from tests.models.counting import num_parameters

State = dict[str, Tensor]


@pytest.fixture(scope="module")
def state() -> State:
    """A ResNet-18 as torchvision itself makes it, with lived-in batch-norm statistics."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = import_torchvision().models.resnet18(weights=None)
        model(torch.randn(4, 3, 32, 32))
    return model.state_dict()


def save_legacy(state: State, path: Path) -> None:
    torch.save(state, path, _use_new_zipfile_serialization=False)


FORMATS: list[tuple[str, Callable[[State, Path], None]]] = [
    ("weights.pth", torch.save),
    ("legacy.pth", save_legacy),
    ("weights.safetensors", save_file),
]


def backbone(state: State) -> State:
    return {
        name: tensor
        for name, tensor in state.items()
        if not name.startswith("fc.") and not name.endswith("num_batches_tracked")
    }


@pytest.mark.parametrize(("name", "backbone_size"), [("resnet18", 11_176_512), ("resnet34", 21_284_672)])
def test_size_of_the_backbone(name: str, backbone_size: int):
    model = build_model(ModelConfig(name=name), 10, seed=0)
    assert num_parameters(model) - num_parameters(model.get_submodule("fc")) == backbone_size


@pytest.mark.parametrize("pixels", [32, 84, 224])
def test_image_sizes(pixels: int):
    with torch.no_grad():
        assert build_model(ModelConfig(name="resnet18"), 6, seed=0)(torch.zeros(2, 1, pixels, pixels)).shape == (2, 6)


@pytest.mark.parametrize(("file", "save"), FORMATS)
def test_a_local_file_gives_the_backbone_and_the_seed_the_head(
    tmp_path: Path, state: State, file: str, save: Callable[[State, Path], None]
):
    save(state, tmp_path / file)
    model = build_model(ModelConfig(name="resnet18", weights=str(tmp_path / file)), 5, seed=1)
    loaded = backbone(model.state_dict())
    assert loaded.keys() == backbone(state).keys()
    assert all(torch.equal(loaded[name], state[name]) for name in loaded)
    assert torch.equal(
        model.state_dict()["fc.weight"], build_model(ModelConfig(name="resnet18"), 5, seed=1).state_dict()["fc.weight"]
    )


def test_loaded_weights_compute_what_torchvision_computes(tmp_path: Path, state: State):
    torch.save(state, tmp_path / "weights.pth")
    theirs = import_torchvision().models.resnet18(weights=None)
    theirs.load_state_dict(state)
    ours = build_model(ModelConfig(name="resnet18", weights=str(tmp_path / "weights.pth")), 1000)
    ours.get_submodule("fc").load_state_dict(theirs.fc.state_dict())
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ours.eval()(images), theirs.eval()(images))


def test_a_file_without_head_or_batch_counters_is_enough(tmp_path: Path, state: State):
    save_file(backbone(state), tmp_path / "old.safetensors")
    model = build_model(ModelConfig(name="resnet18", weights=str(tmp_path / "old.safetensors")), 5)
    assert torch.equal(model.state_dict()["conv1.weight"], state["conv1.weight"])


@pytest.mark.parametrize(("file", "save"), FORMATS)
@pytest.mark.parametrize("kept", [0.0, 0.0001, 0.5, 0.999])
def test_a_truncated_file_is_refused(
    tmp_path: Path, state: State, file: str, save: Callable[[State, Path], None], kept: float
):
    path = tmp_path / file
    save(state, path)
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    refused(str(path), f"weights file '{path}' is damaged or not a state dict of tensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conv1.weight": torch.zeros(64, 3, 3, 3)}, r"'conv1.weight' has shape [64, 3, 3, 3], expected [64, 3, 7, 7]"),
        ({"layer1.0.bn1.running_mean": None}, "it has no 'layer1.0.bn1.running_mean'"),
        ({"layer1.2.conv1.weight": torch.zeros(1)}, "it has 'layer1.2.conv1.weight', which this network does not know"),
    ],
)
def test_a_state_dict_of_another_network_is_refused(tmp_path: Path, state: State, change: dict, message: str):
    path = tmp_path / "weights.pth"
    torch.save({name: tensor for name, tensor in {**state, **change}.items() if tensor is not None}, path)
    refused(str(path), f"weights file '{path}' cannot be used: {message}")


def test_what_is_no_state_dict_is_refused(tmp_path: Path, state: State):
    path = tmp_path / "weights.pth"
    refused(str(path), f"weights file '{path}' does not exist")
    for content in ({"epoch": 3, "state_dict": state}, list(state.values())):
        torch.save(content, path)
        refused(str(path), f"weights file '{path}' is not a state dict of tensors")
    refused("imagenette", "weights must be 'imagenet' or the path of a .safetensors or .pth file, not 'imagenette'")


def test_a_file_that_carries_code_is_refused_and_the_code_not_run(tmp_path: Path):
    path, mark = tmp_path / "weights.pth", tmp_path / "mark"
    torch.save({"conv1.weight": Touch(mark)}, path)
    refused(str(path), f"weights file '{path}' is damaged or not a state dict of tensors")
    assert not mark.exists()


class Touch:
    """Unpickled by a careless reader, this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_imagenet_takes_torchvisions_file(tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch):
    """torchvision's cache, filled by hand under the name that its download would have."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save(state, cache / "resnet18-f37072fd.pth")
    model = build_model(ModelConfig(name="resnet18", weights="imagenet"), 5)
    assert torch.equal(model.state_dict()["layer4.1.conv2.weight"], state["layer4.1.conv2.weight"])


def test_a_download_that_fails_says_what_else_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nobody listens on the discard port
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(urllib.request, "_opener", None)  # it keeps the proxies of its first use
    with pytest.raises(ConnectionError, match=r"could not be downloaded .*; give the path of a local file instead"):
        build_model(ModelConfig(name="resnet18", weights="imagenet"), 5)


def refused(weights: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared below
        build_model(ModelConfig(name="resnet18", weights=weights), 5)
    assert str(caught.value) == message


def test_any_model_starts_from_the_phi_of_another_training(tmp_path: Path):
    small = {"name": "resnet8", "width": 4}
    trained = build_model(ModelConfig(**small), 7, seed=3)
    phi = {name: value.detach() for name, value in trained.named_parameters() if not name.startswith("head.")}
    save_file(phi, tmp_path / "phi.safetensors")
    model = build_model(ModelConfig(**small, weights=str(tmp_path / "phi.safetensors")), 5, seed=1)
    started = dict(model.named_parameters())
    assert all(torch.equal(started[name], value) for name, value in phi.items())
    assert torch.equal(model.head.weight, build_model(ModelConfig(**small), 5, seed=1).head.weight)
    with pytest.raises(ValueError, match=r"phi.safetensors' cannot be used: '.*' has shape"):
        build_model(ModelConfig(name="resnet8", width=8, weights=str(tmp_path / "phi.safetensors")), 5)
