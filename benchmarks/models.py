# SPDX-License-Identifier: Apache-2.0
"""Writes the networks of the benchmark with seeded random weights, since speed does not depend on their values.

    pip install torch torchvision onnx
    python benchmarks/models.py FOLDER [NAME …]

For each network NAME.onnx, inputs for it (NAME.npz), and what peers read besides: TorchScript (NAME.pt, for pnnx), and
NAME.tflite where litert-torch is installed. `light_*` are those that the `onnx` package ships without weights.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnx.version_converter
import torch
import torchvision
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import Conv2dNormActivation, SqueezeExcitation

OPSET = 17

# Networks for images that torchvision does not have.


def separable(inputs: int, outputs: int, stride: int = 1, kernel: int = 3, activation=nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        Conv2dNormActivation(inputs, inputs, kernel, stride, groups=inputs, activation_layer=activation),
        Conv2dNormActivation(inputs, outputs, 1, activation_layer=activation))


def classifier(channels: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def mobilenet_v1(width: float = 1.0, classes: int = 1000) -> nn.Sequential:
    """arXiv:1704.04861, table 1."""
    channels = [int(width * count) for count in (32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)]
    strides = [1, 2, 1, 2, 1, 2, *[1] * 5, 2, 1]
    blocks = [separable(*pair, stride) for *pair, stride in zip(channels, channels[1:], strides, strict=False)]
    return nn.Sequential(Conv2dNormActivation(3, channels[0], 3, 2), *blocks, *classifier(channels[-1], classes))


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-B0 without squeeze-and-excite, with ReLU6."""
    network = torchvision.models.efficientnet_b0()
    replace(network, SqueezeExcitation, nn.Identity)
    replace(network, nn.SiLU, nn.ReLU6)
    return network


def replace(module: nn.Module, old: type[nn.Module], new: Callable[[], nn.Module]) -> None:
    for name, child in module.named_children():
        if isinstance(child, old):
            setattr(module, name, new())
        else:
            replace(child, old, new)


class UNet(nn.Module):
    """arXiv:1505.04597 with padded convolutions, four levels, from 16 channels to 256."""

    def __init__(self, first: int = 16, levels: int = 4, classes: int = 2):
        super().__init__()
        widths = [first << level for level in range(levels + 1)]
        self.down = nn.ModuleList(map(self.double, [3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in widths[:-1])
        self.merge = nn.ModuleList(self.double(2 * width, width) for width in widths[:-1])
        self.head = nn.Conv2d(first, classes, 1)

    @staticmethod
    def double(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(Conv2dNormActivation(inputs, outputs), Conv2dNormActivation(outputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            skipped.append(x)
        skipped.pop()
        for up, merge in zip(reversed(self.up), reversed(self.merge), strict=True):
            x = merge(torch.cat([skipped.pop(), up(x)], 1))
        return self.head(x)


# YOLOX-nano, arXiv:2107.08430: width 0.25, depth 0.33, depthwise convolutions.


def silu(inputs: int, outputs: int, kernel: int = 1) -> nn.Module:
    return Conv2dNormActivation(inputs, outputs, kernel, activation_layer=nn.SiLU)


def silu_separable(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    return separable(inputs, outputs, stride, activation=nn.SiLU)


class Residual(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class CrossStage(nn.Module):
    """Half of the channels through `depth` bottlenecks, half around them."""

    def __init__(self, inputs: int, outputs: int, depth: int = 1, residual: bool = False):
        super().__init__()
        half = outputs // 2
        bottleneck = Residual if residual else nn.Sequential
        self.through = nn.Sequential(silu(inputs, half), *(bottleneck(silu(half, half), silu_separable(half, half))
                                                           for _ in range(depth)))
        self.around = silu(inputs, half)
        self.join = silu(outputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.cat([self.through(x), self.around(x)], 1))


class PyramidPool(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.enter, self.leave = silu(channels, channels // 2), silu(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        return self.leave(torch.cat([x, *(functional.max_pool2d(x, size, 1, size // 2) for size in (5, 9, 13))], 1))


class DetectionHead(nn.Module):
    """Box, objectness and class scores of every place."""

    def __init__(self, inputs: int, channels: int = 64, classes: int = 80):
        super().__init__()
        self.stem = silu(inputs, channels)
        self.classes, self.boxes = (nn.Sequential(*(silu_separable(channels, channels) for _ in range(2)))
                                    for _ in range(2))
        self.score, self.box, self.object = (nn.Conv2d(channels, count, 1) for count in (classes, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        boxes = self.boxes(x)
        return torch.cat([self.box(boxes), self.object(boxes).sigmoid(),
                          self.score(self.classes(x)).sigmoid()], 1).flatten(2)


class YoloxNano(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(silu(12, 16, 3), silu_separable(16, 32, 2), CrossStage(32, 32, 1, True))
        self.stage3 = nn.Sequential(silu_separable(32, 64, 2), CrossStage(64, 64, 3, True))
        self.stage4 = nn.Sequential(silu_separable(64, 128, 2), CrossStage(128, 128, 3, True))
        self.stage5 = nn.Sequential(silu_separable(128, 256, 2), PyramidPool(256), CrossStage(256, 256))
        self.reduce5, self.up4 = silu(256, 128), CrossStage(256, 128)
        self.reduce4, self.up3 = silu(128, 64), CrossStage(128, 64)
        self.down3, self.out4 = silu_separable(64, 64, 2), CrossStage(128, 128)
        self.down4, self.out5 = silu_separable(128, 128, 2), CrossStage(256, 256)
        self.heads = nn.ModuleList(map(DetectionHead, (64, 128, 256)))

    def forward(self, image: Tensor) -> Tensor:
        corners = [image[..., row::2, column::2] for column in (0, 1) for row in (0, 1)]
        x3 = self.stage3(self.stem(torch.cat(corners, 1)))
        x4 = self.stage4(x3)
        top5 = self.reduce5(self.stage5(x4))
        top4 = self.reduce4(self.up4(torch.cat([self.twice(top5), x4], 1)))
        out3 = self.up3(torch.cat([self.twice(top4), x3], 1))
        out4 = self.out4(torch.cat([self.down3(out3), top4], 1))
        out5 = self.out5(torch.cat([self.down4(out4), top5], 1))
        places = [head(x) for head, x in zip(self.heads, (out3, out4, out5), strict=True)]
        return torch.cat(places, 2).permute(0, 2, 1)

    @staticmethod
    def twice(x: Tensor) -> Tensor:
        return functional.interpolate(x, scale_factor=2.0, mode="nearest")


# Transformers.


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, width = x.shape

        def split(y: Tensor) -> Tensor:
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        scores = split(self.query(x)) @ split(self.key(x)).transpose(-1, -2) / math.sqrt(width // self.heads)
        weights = (scores if mask is None else scores + mask).softmax(-1)
        return self.out((weights @ split(self.value(x))).transpose(1, 2).reshape(batch, length, width))


class TransformerLayer(nn.Module):
    """norm_first: as in ViT; else as in BERT."""

    def __init__(self, width: int, heads: int, norm_first: bool):
        super().__init__()
        self.attention = Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.norm_first = norm_first

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.norm_first:
            x = x + self.attention(self.norm1(x), mask)
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.feed(x))


class Bert(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int = 128, words: int = 30522):
        super().__init__()
        self.words, self.places, self.types = (nn.Embedding(count, width) for count in (words, 512, 2))
        self.norm, self.pool = nn.LayerNorm(width), nn.Linear(width, width)
        self.layers = nn.ModuleList(TransformerLayer(width, heads, norm_first=False) for _ in range(layers))
        self.register_buffer("positions", torch.arange(length)[None])

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.words(ids) + self.places(self.positions) + self.types(types))
        hidden = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        return x, torch.tanh(self.pool(x[:, 0]))


class VitTiny(nn.Module):
    def __init__(self, width: int = 192, layers: int = 12, heads: int = 3, patch: int = 16, size: int = 224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(TransformerLayer(width, heads, norm_first=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        x = torch.cat([self.token, self.patches(image).flatten(2).transpose(1, 2)], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


# Small ones: keyword spotting, MLPerf Tiny.


class Recurrent(nn.Module):
    """Two layers over 98 frames of 40 features; twelve words from the last state."""

    def __init__(self, kind: type[nn.RNNBase], width: int = 128):
        super().__init__()
        self.layers, self.head = kind(40, width, 2, batch_first=True), nn.Linear(width, 12)

    def forward(self, frames: Tensor) -> Tensor:
        return self.head(self.layers(frames)[0][:, -1])


class Shortcut(nn.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.body = nn.Sequential(Conv2dNormActivation(inputs, outputs, 3, stride),
                                  Conv2dNormActivation(outputs, outputs, activation_layer=None))
        self.around = nn.Identity() if inputs == outputs else \
            Conv2dNormActivation(inputs, outputs, 1, stride, activation_layer=None)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.around(x))


def tiny_resnet8() -> nn.Sequential:
    return nn.Sequential(Conv2dNormActivation(3, 16), Shortcut(16, 16), Shortcut(16, 32, 2), Shortcut(32, 64, 2),
                         *classifier(64, 10), nn.Softmax(-1))


def tiny_dscnn_kws() -> nn.Sequential:
    stem = [nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*stem, *(separable(64, 64) for _ in range(4)), *classifier(64, 12), nn.Softmax(-1))


def tiny_ad() -> nn.Sequential:
    widths = [640, *[128] * 4, 8, *[128] * 4]
    layers = [layer for inputs, outputs in pairwise(widths)
              for layer in (nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(128, 640))


IMAGE, TEXT, FRAMES = (1, 3, 224, 224), ("ids", "mask", "types"), (1, 98, 40)
#: Network -> what makes it, the shape of its input, or the names of those that are sequences of 128 integers.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple]] = {
    "mobilenet_v1": (mobilenet_v1, IMAGE),
    "mobilenet_v2": (torchvision.models.mobilenet_v2, IMAGE),
    "mobilenet_v3_small": (torchvision.models.mobilenet_v3_small, IMAGE),
    "efficientnet_lite0": (efficientnet_lite0, IMAGE),
    "efficientnet_b0": (torchvision.models.efficientnet_b0, IMAGE),
    "shufflenet_v2": (torchvision.models.shufflenet_v2_x1_0, IMAGE),
    "squeezenet1_1": (torchvision.models.squeezenet1_1, IMAGE),
    "resnet18": (torchvision.models.resnet18, IMAGE),
    "resnet50": (torchvision.models.resnet50, IMAGE),
    "unet_small": (UNet, (1, 3, 256, 256)),
    "yolox_nano": (YoloxNano, (1, 3, 416, 416)),
    "bert_tiny": (lambda: Bert(2, 128, 2), TEXT),
    "minilm_l6": (lambda: Bert(6, 384, 12), TEXT),
    "vit_tiny": (VitTiny, IMAGE),
    "lstm_kws": (lambda: Recurrent(nn.LSTM), FRAMES),
    "gru_kws": (lambda: Recurrent(nn.GRU), FRAMES),
    "tiny_dscnn_kws": (tiny_dscnn_kws, (1, 1, 49, 10)),
    "tiny_resnet8": (tiny_resnet8, (1, 3, 32, 32)),
    "tiny_vww": (lambda: nn.Sequential(mobilenet_v1(0.25, 2), nn.Softmax(-1)), (1, 3, 96, 96)),
    "tiny_ad": (tiny_ad, (1, 640)),
}


def initialise(network: nn.Module) -> None:
    """Sets weights such that values keep their magnitude from layer to layer (He et al. 2015), and random statistics of
    batch normalisation."""
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            fan = module.weight.shape[0] if isinstance(module, nn.ConvTranspose2d) else module.weight[0].numel()
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan))
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=math.sqrt(1 / module.in_features))
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.weight, 0.9, 1.1)
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.8, 1.2)
        if isinstance(getattr(module, "bias", None), nn.Parameter):
            nn.init.uniform_(module.bias, -0.1, 0.1)


def examples(form: tuple) -> dict[str, np.ndarray]:
    """Inputs by name."""
    random = np.random.default_rng(0)
    if form is not TEXT:
        return {"x": random.standard_normal(form).astype(np.float32)}
    ids, shape = random.integers(1, 30000, (1, 128)), (1, 128)
    return dict(zip(TEXT, (ids, np.ones(shape, np.int64), np.zeros(shape, np.int64)), strict=True))


def export(name: str, folder: Path) -> None:
    make, form = NETWORKS[name]
    torch.manual_seed(0)
    network = make().eval()
    initialise(network)
    inputs = examples(form)
    tensors = tuple(map(torch.from_numpy, inputs.values()))
    np.savez(folder / f"{name}.npz", **inputs)
    torch.onnx.export(network, tensors, folder / f"{name}.onnx", opset_version=OPSET, input_names=list(inputs),
                      dynamo=False)
    torch.jit.trace(network, tensors, check_trace=False).save(folder / f"{name}.pt")
    if importlib.util.find_spec("litert_torch"):
        with contextlib.redirect_stdout(sys.stderr):
            importlib.import_module("litert_torch").convert(network, tensors).export(str(folder / f"{name}.tflite"))


# The `onnx` package's networks: ConstantOfShape makes their weights, which have to be numbers for anything to be fast.


def light_models() -> dict[str, Path]:
    folder = Path(onnx.backend.test.__file__).parent / "data" / "light"
    return {path.stem: path for path in sorted(folder.glob("light_*.onnx"))}


#: Ranges of what batch normalisation has: scale, bias, mean, variance.
NORMALISATION = {1: (0.5, 0.8), 2: (-0.1, 0.1), 3: (-0.1, 0.1), 4: (0.7, 1.3)}


def densify(path: Path, folder: Path) -> None:
    """The model with random weights, in our opset."""
    model = onnx.load(path)
    graph, random = model.graph, np.random.default_rng(0)
    readers = {name: (node, index) for node in reversed(graph.node) for index, name in enumerate(node.input)}
    constants = {value.name: value for value in graph.initializer}

    def weights(name: str, shape: tuple[int, ...]) -> np.ndarray:
        node, index = readers[name]
        if node.op_type == "Reshape":
            node, index = readers[node.output[0]]
        if node.op_type == "BatchNormalization":
            return random.uniform(*NORMALISATION[index], shape)
        if len(shape) > 1 and node.op_type in ("Conv", "Gemm", "MatMul"):
            return random.standard_normal(shape) * math.sqrt(1.6 * shape[0] / math.prod(shape))
        return random.uniform(-0.05, 0.05, shape) if len(shape) == 1 else random.uniform(0.5, 1.0, shape)

    shapes = {node.output[0]: tuple(numpy_helper.to_array(constants[node.input[0]]).tolist())
              for node in graph.node if node.op_type == "ConstantOfShape"}
    shapes |= {name: tuple(value.dims) for name, value in constants.items()
               if value.data_type == onnx.TensorProto.FLOAT and math.prod(value.dims) > 1 and name in readers}
    made = [numpy_helper.from_array(weights(name, shape).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [node for node in graph.node if node.output[0] not in shapes]
    used = {name for node in nodes for name in node.input}
    constants_used = [value for name, value in constants.items() if name in used and name not in shapes]
    inputs = [value for value in graph.input if value.name not in constants and value.name not in shapes]
    for field, values in ((graph.node, nodes), (graph.initializer, [*constants_used, *made]), (graph.input, inputs)):
        del field[:]
        field.extend(values)
    model.ir_version = 8
    model = onnx.version_converter.convert_version(model, OPSET)
    onnx.checker.check_model(model)
    onnx.save(model, folder / path.name)
    shape = [dim.dim_value for dim in inputs[0].type.tensor_type.shape.dim]
    np.savez(folder / f"{path.stem}.npz", **{inputs[0].name: random.standard_normal(shape).astype(np.float32)})


def main() -> int:
    names = [*NETWORKS, *light_models()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)} (default: all)")
    args = parser.parse_args()
    if unknown := set(args.names) - set(names):
        parser.error(f"no network {', '.join(sorted(unknown))}")
    args.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    for name in args.names or names:
        print(name, flush=True)
        if name in NETWORKS:
            export(name, args.folder)
        else:
            densify(light_models()[name], args.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
