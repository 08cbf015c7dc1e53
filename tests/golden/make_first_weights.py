#!/usr/bin/env python3
"""Writes first_weights.json beside itself: the standard deviation and the largest magnitude of each parameter of the originals of the
papers' networks, as their libraries draw it.

Needs torch, torchvision, timm, and transformers, which the tests do not (tests/golden/golden_first_weights_test.cpp).
"""
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "bench"))
from originals import NETWORKS

NAMES = ("vgg16", "resnet18", "resnet50", "resnet101", "resnet152", "mobilenet_v3_large", "xception", "inception_v4", "vit_b_16", "vit_60m",
         "gpt2", "bert_base", "transformer", "residual_lstm", "dlrm")


def main():
    networks = {}
    for name in NAMES:
        torch.manual_seed(1)
        original = NETWORKS[name](2)
        with tempfile.TemporaryDirectory() as folder:
            original.save(pathlib.Path(folder))
            state = load_file(pathlib.Path(folder) / "model.safetensors")
        networks[name] = {"for": original.purpose, "library": original.names, "parameters": {
            key: [float(f"{t.double().std(unbiased=False).item():.4g}"), float(f"{t.double().abs().max().item():.4g}")]
            for key, t in sorted(state.items()) if t.is_floating_point()}}
    text = ",\n".join(json.dumps(name) + ": " + json.dumps(network, separators=(",", ":")) for name, network in networks.items())
    (HERE / "first_weights.json").write_text("{\n" + text + "\n}\n")


if __name__ == "__main__":
    main()
