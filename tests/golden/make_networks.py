#!/usr/bin/env python3
"""Writes networks.json beside itself: the losses of PyTorch's training of every network, step by step.

Weights and batches are Tandem's: build/release/bin/golden_export writes them to a directory of its own, which is
removed again. Each loss is printed beside that of the same training in double precision: what f32 alone makes of it.
Needs torch, which the test does not: it reads the file (tests/golden/golden_networks_test.cpp).
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch
from torch.nn.functional import cross_entropy

from torch_networks import NETWORKS

HERE = pathlib.Path(__file__).resolve().parent
EXPORT = HERE.parent.parent / "build/release/bin/golden_export"
DTYPES = {"F32": torch.float32, "F64": torch.float64, "I32": torch.int32, "I64": torch.int64}


def read_safetensors(path):
    raw = bytearray(path.read_bytes())
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)

    def tensor(entry):
        begin, end = entry["data_offsets"]
        values = torch.frombuffer(raw[8 + length + begin:8 + length + end], dtype=DTYPES[entry["dtype"]])
        return values.reshape(entry["shape"]).clone()
    return {name: tensor(entry) for name, entry in header.items()}


def train(case, folder, dtype=None):
    """The losses, and that of the first batch in evaluation after them."""
    model = NETWORKS[case["network"]](**case["arguments"])
    weights, batches = (read_safetensors(folder / f"{what}.safetensors") for what in ("weights", "batches"))
    dtype = dtype or next(w.dtype for w in weights.values() if w.is_floating_point())
    model.to(dtype).load_state_dict(weights)
    optimizer = getattr(torch.optim, case["optimizer"]["kind"])(model.parameters(), **case["optimizer"]["options"])

    def loss_of(step):
        images = batches[f"images.{step}"].to(dtype).permute(0, 3, 1, 2)
        return cross_entropy(model(images), batches[f"labels.{step}"].long())
    losses = []
    for step in range(case["steps"]):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        return losses, loss_of(0).item()


def main():
    torch.set_num_threads(1)
    document = {"torch": torch.__version__.split("+")[0], "losses": {}, "evaluation": {}}
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([EXPORT, directory], check=True)
        for number, case in enumerate(json.loads((pathlib.Path(directory) / "cases.json").read_text())):
            folder = pathlib.Path(directory) / str(number)
            losses, evaluation = train(case, folder)
            exact, _ = train(case, folder, torch.float64)
            off = [abs(a - b) / b for a, b in zip(losses, exact)]
            print(f"{case['name']:<24} {losses[0]:.4f} -> {losses[-1]:.4f}, evaluation {evaluation:.4f}; "
                  f"off by {max(off[:5]):.1e}, {max(off):.1e}", flush=True)
            document["losses"][case["name"]], document["evaluation"][case["name"]] = losses, evaluation
    (HERE / "networks.json").write_text(json.dumps(document, indent=0, allow_nan=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
