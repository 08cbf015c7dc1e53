#!/usr/bin/env python3
"""Writes networks as PyTorch saves them, and reads what Tandem saved of them.

    make_weights.py                  writes beside itself network-NAME.safetensors, and weights-torch.json: images (N,H,W,C)
                                      and what each network makes of them
    make_weights.py --check FOLDER   loads FOLDER/NAME.safetensors, which tests/nn/weights_test.cpp leaves there where
                                      TANDEM_SAVED_WEIGHTS names it, and compares what each network makes of the images

Needs torch and safetensors, which the tests do not: they read the files (tests/nn/weights_test.cpp).
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

from torch_networks import ConvNet, Mlp, ResNet, Vgg, after_training

HERE = pathlib.Path(__file__).parent
SAMPLES, SIDE, CLASSES = 3, 8, 4
TOLERANCE = 1e-5
NETWORKS = {"mlp": lambda: Mlp(inputs=3 * SIDE * SIDE, hidden=6, classes=CLASSES),
            "convnet": lambda: ConvNet((4, 5), classes=CLASSES),
            "resnet20": lambda: ResNet(20, width=4, classes=CLASSES),
            "vgg": lambda: Vgg([[4, 5], [6]], pixels=2 * 2, hidden=[7], classes=CLASSES)}


def make():
    torch.manual_seed(2)
    images = torch.randn(SAMPLES, 3, SIDE, SIDE)
    outputs = {}
    for name, network in NETWORKS.items():
        model = after_training(network(), 3, SIDE, SIDE)
        save_file(model.state_dict(), HERE / f"network-{name}.safetensors")
        outputs[name] = model(images).flatten().tolist()
    (HERE / "weights-torch.json").write_text(
        json.dumps({"images": images.permute(0, 2, 3, 1).flatten().tolist(), "outputs": outputs}) + "\n")


def check(folder):
    golden = json.loads((HERE / "weights-torch.json").read_text())
    images = torch.tensor(golden["images"]).reshape(SAMPLES, SIDE, SIDE, 3).permute(0, 3, 1, 2)
    for name, network in NETWORKS.items():
        model = network()
        model.load_state_dict(load_file(folder / f"{name}.safetensors"), strict=True)
        model.eval()
        error = (model(images).flatten() - torch.tensor(golden["outputs"][name])).abs().max().item()
        print(f"{name}: loaded, outputs differ by {error:.1e} at most")
        if error > TOLERANCE:
            sys.exit(f"{name}: PyTorch does not get from Tandem's file what Tandem got from PyTorch's")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.no_grad():
        check(pathlib.Path(sys.argv[2])) if sys.argv[1:2] == ["--check"] else make()
