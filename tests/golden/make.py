#!/usr/bin/env python3
"""Writes training.json beside itself: what PyTorch makes of three steps of SGD, in double precision.

Needs torch, which the tests do not: they read the file (tests/golden_test.cpp). Names, shapes and layouts are
Tandem's: images (N,H,W,C), convolution weights (O,H,W,I).
"""
import json
import pathlib

import torch
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d, relu

STEPS, SAMPLES, CLASSES = 3, 3, 4


class Mlp(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden0, self.hidden1 = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, x):  # (N,H,W,C)
        return self.head(relu(self.hidden1(relu(self.hidden0(x.flatten(1))))))


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return relu(x + self.second(relu(self.first(x))))


class MlpResidual(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.stem = nn.Linear(inputs, hidden)
        self.block0, self.block1 = ResidualBlock(hidden), ResidualBlock(hidden)
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, x):
        return self.head(self.block1(self.block0(relu(self.stem(x.flatten(1))))))


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return max_pool2d(relu(self.norm(self.conv(x))), 2)


class ConvNet(nn.Module):
    def __init__(self, channels, widths):
        super().__init__()
        self.block0, self.block1 = ConvBlock(channels, widths[0]), ConvBlock(widths[0], widths[1])
        self.head = nn.Linear(widths[1], CLASSES)

    def forward(self, x):
        return self.head(self.block1(self.block0(x.permute(0, 3, 1, 2))).mean((2, 3)))


def values(tensor):
    tensor = tensor.detach()
    if tensor.dim() == 4:
        tensor = tensor.permute(0, 2, 3, 1)
    return {"shape": list(tensor.shape), "values": tensor.flatten().tolist()}


def state(model):
    return {k: values(v) for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")}


def case(name, model, sample, kind, options, clip=None):
    result = {"name": name, "sample": sample, "optimizer": kind, "options": options, "clip": clip, "initial": state(model),
              "batches": []}
    biases = [p for n, p in model.named_parameters() if n.endswith("bias")]  # at half the rate, without decay
    others = [p for n, p in model.named_parameters() if not n.endswith("bias")]
    groups = [{"params": biases, "lr": options["lr"] / 2, "weight_decay": 0}, {"params": others}]
    grouped = kind == "AdamW"
    optimizer = getattr(torch.optim, kind)(groups if grouped else model.parameters(), **options)
    for _ in range(STEPS):
        images, labels = torch.randn(SAMPLES, *sample), torch.randint(CLASSES, (SAMPLES,))
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        result["batches"].append(
            {"images": images.flatten().tolist(), "labels": labels.tolist(), "loss": loss.item()})
    result["final"] = state(model)
    return result


def main():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    cases = [
        case("mlp", Mlp(12, 6), [2, 2, 3], "SGD", {"lr": 0.1, "momentum": 0, "weight_decay": 0.01, "nesterov": False}),
        case("mlp-residual", MlpResidual(12, 6), [2, 2, 3], "SGD",
             {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": False}),
        case("convnet", ConvNet(3, (4, 5)), [6, 6, 3],  # 6 -> 3 -> 1: the second pooling drops a row and a column
             "SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
        case("mlp", Mlp(12, 6), [2, 2, 3], "Adam", {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}),
        case("mlp-residual", MlpResidual(12, 6), [2, 2, 3], "AdamW", {"lr": 0.01, "weight_decay": 0.1}),
        case("mlp", Mlp(12, 6), [2, 2, 3], "SGD",
             {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": False}, clip=0.2),
    ]
    document = {"torch": torch.__version__.split("+")[0], "samples": SAMPLES, "classes": CLASSES, "cases": cases}
    pathlib.Path(__file__).with_name("training.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
