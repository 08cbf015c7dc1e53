#!/usr/bin/env python3
"""Writes beside itself what PyTorch makes of small networks.

training.json: three steps of SGD, in double precision. Names, shapes and layouts are Tandem's: images (N,H,W,C),
convolution weights (O,H,W,I). weights-f32.safetensors, weights-f64.safetensors: a network's state_dict as PyTorch
has it; weights.json: images (N,H,W,C), and what the network makes of them.

Needs torch, which the tests do not: they read the files (tests/golden/golden_training_test.cpp, tests/nn/weights_test.cpp).
"""
import json
import pathlib
import struct

import torch
from torch.nn.functional import cross_entropy

from torch_networks import ConvNet, Flattened, Mlp, MlpResidual, after_training

STEPS, SAMPLES, CLASSES = 3, 3, 4


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
        images, labels = torch.randn(SAMPLES, *sample), torch.randint(CLASSES, (SAMPLES,))  # (N,H,W,C)
        # A matrix sees the elements in Tandem's order, so that its columns are Tandem's.
        loss = cross_entropy(model(images.permute(0, 3, 1, 2) if isinstance(model, ConvNet) else images), labels)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        result["batches"].append(
            {"images": images.flatten().tolist(), "labels": labels.tolist(), "loss": loss.item()})
    result["final"] = state(model)
    return result


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
    model, images = Flattened(CLASSES), torch.randn(SAMPLES, 3, 6, 6)
    after_training(model, 3, 6, 6)
    write_safetensors(folder / "weights-f64.safetensors", model.state_dict())
    (folder / "weights.json").write_text(json.dumps(
        {"images": images.permute(0, 2, 3, 1).flatten().tolist(), "output": model(images).flatten().tolist(),
         "num_batches_tracked": model.norm.num_batches_tracked.item()}) + "\n")
    write_safetensors(folder / "weights-f32.safetensors", model.float().state_dict())


def main():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)

    def mlp():
        return Mlp(inputs=12, hidden=6, classes=CLASSES)

    def residual():
        return MlpResidual(blocks=2, inputs=12, hidden=6, classes=CLASSES)

    cases = [
        case("mlp", mlp(), [2, 2, 3], "SGD", {"lr": 0.1, "momentum": 0, "weight_decay": 0.01, "nesterov": False}),
        case("mlp-residual", residual(), [2, 2, 3], "SGD",
             {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": False}),
        case("convnet", ConvNet((4, 5), classes=CLASSES), [6, 6, 3], "SGD",  # 6 -> 3 -> 1: the second pooling drops some
             {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
        case("mlp", mlp(), [2, 2, 3], "Adam", {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}),
        case("mlp-residual", residual(), [2, 2, 3], "AdamW", {"lr": 0.01, "weight_decay": 0.1}),
        case("mlp", mlp(), [2, 2, 3], "SGD",
             {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": False}, clip=0.2),
    ]
    document = {"torch": torch.__version__.split("+")[0], "samples": SAMPLES, "classes": CLASSES, "cases": cases}
    pathlib.Path(__file__).with_name("training.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")
    write_weights(pathlib.Path(__file__).parent)


if __name__ == "__main__":
    main()
