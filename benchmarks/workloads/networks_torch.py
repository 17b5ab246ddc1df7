"""Training steps of the larger networks in PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.workloads import networks


def _convolution(layer: dict[str, Any], stride: int, padding: int) -> nn.Conv2d:
    size, _, inputs, outputs = layer["w"].shape
    made = nn.Conv2d(inputs, outputs, size, stride, padding, bias="b" in layer)
    made.weight.data.copy_(torch.from_numpy(layer["w"]).permute(3, 2, 0, 1))
    if "b" in layer:
        made.bias.data.copy_(torch.from_numpy(layer["b"]))
    return made


def _linear(layer: dict[str, Any]) -> nn.Linear:
    made = nn.Linear(*layer["w"].shape)
    made.weight.data.copy_(torch.from_numpy(layer["w"]).T)
    made.bias.data.copy_(torch.from_numpy(layer["b"]))
    return made


def _unit(layer: dict[str, Any], stride: int = 1, padding: int = 0, eps: float = 1e-5, relu: bool = True) -> nn.Module:
    parts: list[nn.Module] = [_convolution(layer, stride, padding), nn.BatchNorm2d(layer["w"].shape[-1], eps=eps)]
    return nn.Sequential(*parts, *([nn.ReLU(inplace=True)] if relu else []))


class Residual(nn.Module):
    """A bottleneck with its shortcut."""

    def __init__(self, block: dict[str, Any], stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _unit(block["conv1"]), _unit(block["conv2"], stride, 1), _unit(block["conv3"], relu=False)
        )
        shortcut = block.get("shortcut")
        self.shortcut = _unit(shortcut, stride, relu=False) if shortcut else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``relu(body + shortcut)``."""
        return torch.relu_(self.body(x) + self.shortcut(x))


class Inception(nn.Module):
    """Four branches, joined along the channels."""

    def __init__(self, block: dict[str, Any]) -> None:
        super().__init__()
        eps = 1e-3
        branches = [
            [_unit(block[part], padding=int(part in ("second2", "third2")), eps=eps) for part in parts]
            for parts in networks.BRANCHES
        ]
        branches[3].insert(0, nn.MaxPool2d(3, 1, 1))
        self.branches = nn.ModuleList(nn.Sequential(*parts) for parts in branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the channels of all branches."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _alexnet(params: dict[str, Any], dropout: float) -> nn.Module:
    parts: list[nn.Module] = []
    for number, (stride, padding) in enumerate(networks.CONVOLUTIONS, 1):
        parts += [_convolution(params[f"conv{number}"], stride, padding), nn.ReLU(inplace=True)]
        if number in (1, 2, 5):
            parts.append(nn.MaxPool2d(3, 2))
    first = params["dense1"]
    weights = first["w"].reshape(6, 6, 256, -1).transpose(2, 0, 1, 3).reshape(first["w"].shape)
    hidden = [_linear({"w": np.ascontiguousarray(weights), "b": first["b"]}), _linear(params["dense2"])]
    parts.append(nn.Flatten())
    for layer in hidden:
        parts += [nn.Dropout(dropout), layer, nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, _linear(params["dense3"]))


def _resnet(params: dict[str, Any], dropout: float) -> nn.Module:
    blocks = [
        Residual(block, 2 if number and position == 0 else 1)
        for number, stage in enumerate(params["stages"])
        for position, block in enumerate(stage)
    ]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), _linear(params["dense"])]
    return nn.Sequential(_unit(params["stem"], 2, 3), nn.MaxPool2d(3, 2, 1), *blocks, *head)


def _googlenet(params: dict[str, Any], dropout: float) -> nn.Module:
    def pool(window: int) -> nn.Module:
        return nn.MaxPool2d(window, 2, ceil_mode=True)

    eps = 1e-3
    parts = [_unit(params["stem1"], 2, 3, eps), pool(3), _unit(params["stem2"], eps=eps)]
    parts += [_unit(params["stem3"], 1, 1, eps), pool(3)]
    for name in networks.INCEPTIONS:
        parts.append(Inception(params[name]))
        if name in networks.POOLED_AFTER:
            parts.append(pool(networks.POOLED_AFTER[name]))
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), _linear(params["dense"]))


class Recurrent(nn.Module):
    """``nn.LSTM`` with one bias that learns, as futurex has it, and a dense layer behind the last output."""

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__()
        layers = params["layers"]
        self.layers = nn.LSTM(layers[0]["w"].shape[0], layers[0]["u"].shape[0], len(layers), batch_first=True)
        for number, layer in enumerate(layers):
            for kind, values in (("weight_ih", layer["w"].T), ("weight_hh", layer["u"].T), ("bias_ih", layer["b"])):
                getattr(self.layers, f"{kind}_l{number}").data.copy_(torch.from_numpy(values))
            second = getattr(self.layers, f"bias_hh_l{number}")
            second.data.zero_()
            second.requires_grad_(False)
        self.dense = _linear(params["dense"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes)."""
        return self.dense(self.layers(x)[0][:, -1])


def _lstm(params: dict[str, Any], dropout: float) -> nn.Module:
    return Recurrent(params)


def _transformer(params: dict[str, Any], dropout: float) -> nn.Module:
    width, _, heads, _ = params["attention"]["w"].shape
    hidden = params["dense1"]["w"].shape[1]
    gelu = nn.GELU("tanh")
    block = nn.TransformerEncoderLayer(width, heads, hidden, dropout, gelu, batch_first=True, norm_first=True)
    attention, given = params["attention"], block.self_attn
    given.in_proj_weight.data.copy_(torch.from_numpy(attention["w"].reshape(width, -1).T))
    given.in_proj_bias.data.copy_(torch.from_numpy(attention["b"].ravel()))
    for target, source in ((given.out_proj, "mix"), (block.linear1, "dense1"), (block.linear2, "dense2")):
        target.weight.data.copy_(torch.from_numpy(params[source]["w"].T))
        target.bias.data.copy_(torch.from_numpy(params[source]["b"]))
    return block


_MAKE = {"alexnet": _alexnet, "googlenet": _googlenet, "resnet50": _resnet, "lstm": _lstm, "transformer": _transformer}


class TrainingStep:
    """One forward, backward and update; ``compiled`` sends network and loss through torch.compile, ``double`` computes
    in double precision."""

    def __init__(
        self,
        name: str,
        weights: str,
        compiled: bool = False,
        channels_last: bool = False,
        device: str = "cpu",
        double: bool = False,
    ) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.name, self.weights, self.compiled, self.channels_last = name, weights, compiled, channels_last
        self.double = double
        self.device = torch.device(device)
        self.step = self._build(networks.NETWORKS[name].dropout)

    def check(self, steps: int) -> list[float]:
        """Return the first losses without dropout."""
        step = self._build(0.0)
        return [step().item() for _ in range(steps)]

    def forget_peak(self) -> None:
        """Begin to measure peak memory."""
        networks.forget_peak()

    def peak(self) -> int:
        """Return peak memory in bytes."""
        return networks.peak()

    def _build(self, dropout: float) -> Callable[[], torch.Tensor]:
        torch.manual_seed(0)
        network = networks.NETWORKS[self.name]
        model = _MAKE[self.name](networks.read_weights(self.weights), dropout)
        inputs, wanted = networks.batch(self.name)
        x = torch.from_numpy(inputs)
        if network.images:
            x = x.permute(0, 3, 1, 2).contiguous()
        if self.channels_last:
            model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
        y = torch.from_numpy(wanted if self.name == "transformer" else wanted.astype(np.int64))
        if self.double:
            model, x, y = model.double(), x.double(), y.double() if y.is_floating_point() else y
        model, x, y = model.to(self.device), x.to(self.device), y.to(self.device)
        learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if network.optimizer == "adam":
            optimizer: Any = torch.optim.Adam(learning, lr=network.rate, fused=True)
        else:
            optimizer = torch.optim.SGD(learning, lr=network.rate, momentum=networks.MOMENTUM, fused=True)
        measure = functional.mse_loss if self.name == "transformer" else functional.cross_entropy

        def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return measure(model(x), y)

        forward = torch.compile(loss_of) if self.compiled else loss_of

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = forward(x, y)
            loss.backward()
            optimizer.step()
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            return loss.detach()

        return step
