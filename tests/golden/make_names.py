#!/usr/bin/env python3
"""Writes names.json beside itself: names and shapes in the files that torchvision, timm, and transformers save of their networks.

Needs torch, torchvision, timm, and transformers, which the tests do not (tests/golden/golden_originals_test.cpp).
"""
import json
import pathlib
import sys
import tempfile

from safetensors import safe_open

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from originals import NETWORKS  # noqa: E402


def shapes_in_file(original):
    with tempfile.TemporaryDirectory() as folder:
        original.save(pathlib.Path(folder))
        with safe_open(pathlib.Path(folder) / "model.safetensors", "pt") as file:
            return {key: file.get_slice(key).get_shape() for key in file.keys()}


def main():
    files = []
    for name, make in NETWORKS.items():
        if "classifier" in name:  # has another head than the network of this name
            continue
        original = make(2)
        files.append({"network": name.split()[0], "purpose": original.purpose, "library": original.names,
                      "shapes": shapes_in_file(original)})
    lines = ",\n".join(json.dumps(f, separators=(",", ":")) for f in files)
    pathlib.Path(__file__).with_name("names.json").write_text(f"[{lines}]\n")


if __name__ == "__main__":
    main()
