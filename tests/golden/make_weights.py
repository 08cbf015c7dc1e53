#!/usr/bin/env python3
"""Writes networks as PyTorch saves them, and reads what Tandem saved of them.

    make_weights.py                  writes beside itself network-NAME.safetensors, and weights-torch.json: images (N,H,W,C)
                                      and what each network makes of them
    make_weights.py --check FOLDER   loads FOLDER/NAME.safetensors, which tests/weights_test.cpp leaves there where
                                      TANDEM_SAVED_WEIGHTS names it, and compares what each network makes of the images

Needs torch and safetensors, which the tests do not: they read the files (tests/weights_test.cpp).
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import max_pool2d, pad, relu

HERE = pathlib.Path(__file__).parent
SAMPLES, SIDE, CLASSES = 3, 8, 4
TOLERANCE = 1e-5


class Mlp(nn.Module):
    """A matrix behind the flattening of an image: its columns are in another order where channels come last."""

    def __init__(self):
        super().__init__()
        self.hidden0, self.hidden1 = nn.Linear(3 * SIDE * SIDE, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):  # (N,C,H,W)
        return self.head(relu(self.hidden1(relu(self.hidden0(x.flatten(1))))))


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return max_pool2d(relu(self.norm(self.conv(x))), 2)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.block0, self.block1 = ConvBlock(3, 4), ConvBlock(4, 5)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x):
        return self.head(self.block1(self.block0(x)).mean((2, 3)))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x):
        y = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
        return relu(y + x)


class ResNet20(nn.Module):
    """He et al. 2016 §4.2, with four channels for 16."""

    def __init__(self, width=4):
        super().__init__()
        def stage(inputs, outputs, stride):
            return nn.Sequential(BasicBlock(inputs, outputs, stride), *[BasicBlock(outputs, outputs, 1) for _ in range(2)])
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.layer1, self.layer2 = stage(width, width, 1), stage(width, 2 * width, 2)
        self.layer3, self.fc = stage(2 * width, 4 * width, 2), nn.Linear(4 * width, CLASSES)

    def forward(self, x):
        return self.fc(self.layer3(self.layer2(self.layer1(relu(self.bn1(self.conv1(x)))))).mean((2, 3)))


class Vgg(nn.Module):
    """Named and built as torchvision's, small: what follows the flattening sees 2×2 pixels."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(5, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Linear(6 * 2 * 2, 7), nn.ReLU(), nn.Dropout(), nn.Linear(7, CLASSES))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


NETWORKS = {"mlp": Mlp, "convnet": ConvNet, "resnet20": ResNet20, "vgg": Vgg}


def make():
    torch.manual_seed(2)
    images = torch.randn(SAMPLES, 3, SIDE, SIDE)
    outputs = {}
    for name, network in NETWORKS.items():
        model = network()
        model(torch.randn(8, 3, SIDE, SIDE) + 0.5)  # statistics other than those of a new network
        model.eval()
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
