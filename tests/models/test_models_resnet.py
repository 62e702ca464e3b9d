"""The CIFAR-style networks: shapes, parameter counts, the parameter-free shortcut, initialization, activations."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rayctsl.config import ModelConfig
from rayctsl.models import MODELS, build_model
from rayctsl.models.resnet import Block, shortcut
from tests.models.counting import num_parameters

CIFAR_BLOCKS = {"resnet8": 1, "resnet20": 3, "resnet32": 5, "resnet44": 7, "resnet56": 9}


def expected_parameters(blocks: int, width: int, num_classes: int) -> int:
    """Counted layer by layer: 3x3 convolutions without bias, two numbers a channel for batch norm, a linear head."""
    total = 9 * 3 * width + 2 * width
    before = width
    for channels in (width, 2 * width, 4 * width):
        total += 9 * before * channels + (2 * blocks - 1) * 9 * channels * channels + 2 * blocks * 2 * channels
        before = channels
    return total + 4 * width * num_classes + num_classes


@pytest.mark.parametrize(("name", "blocks"), CIFAR_BLOCKS.items())
@pytest.mark.parametrize(("width", "num_classes"), [(16, 10), (5, 3)])
def test_parameter_count(name: str, blocks: int, width: int, num_classes: int):
    model = build_model(ModelConfig(name=name, width=width), num_classes)
    assert num_parameters(model) == expected_parameters(blocks, width, num_classes)


def test_every_later_stage_has_half_the_pixels():
    model = build_model(ModelConfig(name="resnet8", width=4), 3)
    seen = {}
    for stage in ("stage1", "stage2", "stage3"):
        model.get_submodule(stage).register_forward_hook(
            lambda module, given, out, stage=stage: seen.update({stage: tuple(out.shape[1:])})
        )
    model(torch.zeros(2, 3, 32, 32))
    assert seen == {"stage1": (4, 32, 32), "stage2": (8, 16, 16), "stage3": (16, 8, 8)}


def test_resnet20_has_the_published_size():
    model = build_model(ModelConfig(name="resnet20"), 10)
    assert num_parameters(model) == 269_722
    assert num_parameters(model.get_submodule(str(model.head_name))) == 650


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_gets_a_gradient(name: str):
    model = build_model(ModelConfig(name=name, width=16 if name in ("resnet18", "resnet34") else 4), 4, seed=0)
    images = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    logits = model(images)
    assert logits.shape == (6, 4)
    torch.nn.functional.cross_entropy(logits, torch.arange(6) % 4).backward()
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None, path
        assert torch.isfinite(parameter.grad).all(), path
        assert parameter.grad.abs().sum() > 0, path


@pytest.mark.parametrize(("height", "width"), [(20, 20), (28, 28), (33, 21), (84, 84), (96, 96)])
@pytest.mark.parametrize("channels", [1, 3])
def test_image_sizes(height: int, width: int, channels: int):
    model = build_model(ModelConfig(name="resnet8", width=3), 7, seed=0)
    assert model(torch.randn(2, channels, height, width)).shape == (2, 7)


@pytest.mark.parametrize("name", ["resnet8", "resnet18"])
def test_grey_is_colour_with_equal_channels(name: str):
    model = build_model(ModelConfig(name=name), 5, seed=0)
    grey = torch.randn(3, 1, 32, 32, generator=torch.Generator().manual_seed(1))
    assert torch.equal(model(grey), model(grey.repeat(1, 3, 1, 1)))


@pytest.mark.parametrize("name", ["resnet8", "resnet18"])
@pytest.mark.parametrize("channels", [2, 4])
def test_other_channel_counts_are_refused(name: str, channels: int):
    with pytest.raises(ValueError, match=f"must have 1 or 3 channels, not {channels}"):
        build_model(ModelConfig(name=name), 5)(torch.zeros(2, channels, 32, 32))


def test_the_memory_layout_of_the_images_changes_nothing():
    model = build_model(ModelConfig(name="resnet8"), 5, seed=0)
    images = torch.randn(3, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    assert torch.equal(model(images), model(images.contiguous(memory_format=torch.channels_last)))


def test_shortcut_by_hand():
    """A 3x3 image of one channel, halved to 2x2 and set between zero channels; odd padding goes to the end."""
    x = torch.tensor([[[[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]]])
    kept, zero = [[1.0, 3], [7, 9]], [[0.0, 0], [0, 0]]
    assert shortcut(x, 2, 3).tolist() == [[zero, kept, zero]]
    assert shortcut(x, 2, 2).tolist() == [[kept, zero]]
    assert shortcut(x, 1, 1) is x


def test_block_is_its_shortcut_when_the_convolutions_are_zero():
    block = Block(1, 3, 2, nn.ReLU).eval()
    for conv in (block.conv1, block.conv2):
        nn.init.zeros_(conv.weight)
    x = torch.tensor([[[[1.0, 2, -3], [4, 5, 6], [7, 8, 9]]]])
    zero = [[0.0, 0], [0, 0]]
    assert block(x).tolist() == [[zero, [[1.0, 0], [7, 9]], zero]]


def test_block_adds_its_two_branches():
    """Centre-pixel kernels of weight 2 and 3: the residual branch multiplies by 6, the sum by 7."""
    block = Block(1, 1, 1, nn.ReLU).eval()
    for conv, factor in ((block.conv1, 2.0), (block.conv2, 3.0)):
        nn.init.zeros_(conv.weight)
        conv.weight.data[0, 0, 1, 1] = factor
    for norm in (block.norm1, block.norm2):
        norm.eps = 0.0
    x = torch.tensor([[[[1.0, 2], [3, 4]]]])
    assert block(x).tolist() == [[[[7.0, 14], [21, 28]]]]


@pytest.mark.parametrize("name", ["resnet20", "resnet18"])
def test_initialization_is_kaiming_fan_out_and_plain_batch_norm(name: str):
    model = build_model(ModelConfig(name=name), 10, seed=3)
    scaled = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            normal = module.weight.detach() / math.sqrt(2 / fan_out)
            # Six standard errors of the mean and of the standard deviation of n normal numbers.
            assert abs(normal.mean()) < 6 / math.sqrt(normal.numel())
            assert abs(normal.std() - 1) < 6 / math.sqrt(2 * normal.numel())
            scaled.append(normal.flatten())
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()
            assert (module.momentum, module.eps) == (0.1, 1e-5)
    values = torch.cat(scaled)
    assert abs((values**4).mean() - 3) < 0.15  # a uniform distribution would have 1.8


@pytest.mark.parametrize(("name", "norms"), [("resnet8", 7), ("resnet20", 19), ("resnet18", 20)])
def test_every_convolution_has_its_batch_norm(name: str, norms: int):
    model = build_model(ModelConfig(name=name), 10)
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(nn.BatchNorm2d) == norms
    assert kinds.count(nn.Conv2d) == norms


def test_training_and_evaluation_mode_use_different_statistics():
    model = build_model(ModelConfig(name="resnet8", width=4), 5, seed=0)
    images = torch.randn(8, 3, 20, 20, generator=torch.Generator().manual_seed(0)) + 2
    assert not torch.allclose(model.train()(images), model.eval()(images))


@pytest.mark.parametrize("name", ["resnet8", "resnet18"])
def test_softplus_leaves_no_relu_and_a_smooth_function(name: str):
    rough, smooth = (
        build_model(ModelConfig(name=name, activation=activation), 3, seed=0) for activation in ("relu", "softplus")
    )
    assert any(isinstance(module, nn.ReLU) for module in rough.modules())
    assert not any(isinstance(module, nn.ReLU) for module in smooth.modules())
    assert all(torch.equal(a, b) for a, b in zip(rough.parameters(), smooth.parameters(), strict=True))
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(rough(images), smooth(images))
    # Between its kinks a ReLU network with fixed statistics is linear in the image; Softplus bends everywhere.
    assert not curvature(rough, images).any()
    assert (curvature(smooth, images) != 0).all()


def curvature(model: nn.Module, images: Tensor) -> Tensor:
    """The second derivative of the summed logits along the all-ones direction, per pixel."""
    images = images.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model.eval()(images).sum(), images, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), images, allow_unused=True, materialize_grads=True)
    return bend


def test_in_place_activation_is_safe_for_autograd():
    """The gradient equals a finite difference in float64."""
    model = build_model(ModelConfig(name="resnet8", width=2), 2, seed=0).double().eval()
    x = torch.randn(1, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(model, (x.requires_grad_(),))


@pytest.mark.parametrize("stride", [1, 2])
def test_the_shortcuts_gradient_keeps_channels_last(stride: int):
    x = torch.randn(2, 4, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    out = shortcut(x, stride, 8)
    assert torch.equal(out[:, 2:6], x[:, :, ::stride, ::stride])
    out.square().sum().backward()
    assert x.grad is not None
    assert x.grad.is_contiguous(memory_format=torch.channels_last)


def test_every_gradient_inside_the_network_comes_with_channels_last():
    model = build_model(ModelConfig(name="resnet8", width=4), 3, seed=0)
    seen = []

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.register_hook(lambda gradient: seen.append(gradient.is_contiguous(memory_format=torch.channels_last)))

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d | Block):
            module.register_forward_hook(watch)
    model(torch.randn(2, 3, 12, 12)).square().sum().backward()
    assert len(seen) == 17
    assert all(seen)


ALONE = """
import pathlib, re, sys
sys.modules["rayctsl"] = None  # every import of it fails
text = pathlib.Path("README.md").read_text()
(block,) = [block for block in re.findall(r"^```python\\n(.*?)^```", text, re.M | re.S) if "load_file" in block]
from safetensors.torch import load_file, save_file
for folder in map(pathlib.Path, sys.argv[1:]):
    space = {}
    program = block.replace("rayctsl/zoo/glyphs/phi.safetensors", f"{folder}/phi.safetensors")
    exec(compile(program, "README.md", "exec"), space)
    features = space["features"](load_file(folder / "x.safetensors")["images"]).detach()
    save_file({"features": features}, folder / "x.safetensors")
"""


def test_the_readmes_ten_lines_are_these_networks_without_rayctsl(tmp_path: Path):
    images, modules = torch.randn(6, 3, 16, 16), {}
    for name in ("resnet8", "resnet20"):
        module = modules[name] = build_model(ModelConfig(name=name, width=4), 3, seed=5)
        phi = {key: value.detach() for key, value in module.named_parameters() if not key.startswith("head.")}
        (tmp_path / name).mkdir()
        save_file(phi, tmp_path / name / "phi.safetensors")
        save_file({"images": images}, tmp_path / name / "x.safetensors")
    folders = [str(tmp_path / name) for name in modules]
    subprocess.run([sys.executable, "-c", ALONE, *folders], check=True, cwd=Path(__file__).parents[2])
    for name, module in modules.items():
        module.head = nn.Identity()
        ours, theirs = module.train()(images), load_file(tmp_path / name / "x.safetensors")["features"]
        torch.testing.assert_close(theirs, ours.detach(), atol=1e-5, rtol=1e-5)


def test_a_phi_has_torchvisions_names():
    from rayctsl.torchvision_import import import_torchvision

    import_torchvision()
    from torchvision.models import resnet18

    ours, theirs = (
        {name for name, _ in module.named_parameters() if not name.startswith("fc.")}
        for module in (build_model(ModelConfig(name="resnet18", width=64), 3, seed=0), resnet18(num_classes=3))
    )
    assert ours == theirs
