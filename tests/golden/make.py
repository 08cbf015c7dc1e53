#!/usr/bin/env python3
"""Writes beside itself what PyTorch makes of small networks.

training.json: three steps of SGD, in double precision. Names, shapes and layouts are Tandem's: images (N,H,W,C),
convolution weights (O,H,W,I). weights-f32.safetensors, weights-f64.safetensors: a network's state_dict as PyTorch
has it; weights.json: images (N,H,W,C), and what the network makes of them.

Needs torch, which the tests do not: they read the files (tests/golden_test.cpp, tests/weights_test.cpp).
"""
import json
import pathlib
import struct

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


class Flattened(nn.Module):
    """Has what is laid out differently: convolutions, batch norm's counter, a linear layer after a flattening."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.down = nn.Conv2d(4, 5, 2, bias=False)
        self.fc, self.head = nn.Linear(5 * 2 * 2, 6), nn.Linear(6, CLASSES)

    def forward(self, x):  # (N,C,6,6)
        h = max_pool2d(relu(self.norm(self.conv(x))), 2)
        return self.head(relu(self.fc(relu(self.down(h)).flatten(1))))


def write_safetensors(path, tensors):
    """The format by hand, so that what is read was not written by the code under test."""
    dtypes = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": dtypes[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_weights(folder):
    model, images = Flattened(), torch.randn(SAMPLES, 3, 6, 6)
    model(torch.randn(8, 3, 6, 6) + 0.5)  # statistics other than those of a new network
    model.eval()
    write_safetensors(folder / "weights-f64.safetensors", model.state_dict())
    (folder / "weights.json").write_text(json.dumps(
        {"images": images.permute(0, 2, 3, 1).flatten().tolist(), "output": model(images).flatten().tolist(),
         "num_batches_tracked": model.norm.num_batches_tracked.item()}) + "\n")
    write_safetensors(folder / "weights-f32.safetensors", model.float().state_dict())


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
    write_weights(pathlib.Path(__file__).parent)


if __name__ == "__main__":
    main()
