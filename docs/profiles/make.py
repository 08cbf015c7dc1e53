#!/usr/bin/env python3
"""Writes the profiles of this folder: xception.json, resnet152.json, vgg16.json, bert-base.json.

Each is the backward pass of one network of LIBRA's Table I on one V100 of the paper's cluster. Nothing was run: the
numbers follow from the traced graphs of Tandem's networks and from published figures, each with its source below.
Usage: python3 make.py [DIRECTORY], after a build; TANDEM names the program if it is not build/release/bin/tandem. It
needs only Python's standard library.

How the times are made: an op takes max(flops / peak, bytes / bandwidth) on an ideal V100, as `tandem layers` says. A
published training throughput says how much slower the whole network is. This factor, one for each network, multiplies
all its times.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

# ---- The device: NVIDIA Tesla V100 SXM2 data sheet: 15.7 TFLOPS in single precision, 900 GB/s.
GFLOPS, GIGABYTES = 15700, 900
BYTES = 4  # of a float32

# ---- The cluster and the contention (LIBRA = "Contention-Aware GPU Thread Allocation for Data Parallel Training in
# High Speed Networks"). The paper prints no fitted constant; these are what its text implies.
# "peak bandwidth of 50Gbps" (V-A): the rate that enough threads reach. LIBRA fits overlapped and lone all-reduces
# apart, but says nothing about how they differ; both are equal here.
GAMMA1 = 50e9 / 8 / 1e3
# No threads send nothing.
GAMMA2 = GAMMA1
# "we set an empirical value for γ4, i.e. 0.6" (III-A).
GAMMA4 = 0.6
# From 128 to 2048 threads, a backward pass whose communication takes longer gets 14 % shorter (Fig. 1b, batch 8). Its
# communication alone gets at least as much shorter, so 1 − exp(−γ3·128^γ4) ≤ 0.86. This is the largest such γ3.
GAMMA3 = round(-math.log(0.14) / 128**GAMMA4, 3)
# Computation beside 2048 threads takes 38 % more time (Fig. 1a): 1 − α2·2048 = 1 / 1.38.
ALPHA2 = float(f"{(1 - 1 / 1.38) / 2048:.4g}")
# The paper prints no latency of a hop. About 7 µs is our reading of it: 0.1 ms to start an all-reduce over 8 nodes,
# 28.7 ms over 2048.
HOP_LATENCY_MS = 0.007


class Network:
    """The layers of a network that have parameters, in the order of forward, with the ideal times of a batch. `shares`
    multiplies the times of the modules that it names."""

    def __init__(self, name, purpose, batch, config=None, shares=None):
        self.batch = batch
        root = pathlib.Path(__file__).parents[2]
        tandem = os.environ.get("TANDEM", str(root / "build/release/bin/tandem"))
        with tempfile.TemporaryDirectory() as folder:
            sizes = []
            if config:
                file = pathlib.Path(folder) / "config.json"
                file.write_text(json.dumps(config), encoding="utf-8")
                sizes = ["--config", str(file)]
            out = subprocess.run([tandem, "layers", name, "--for", purpose, "-b", str(batch), "--gflops", str(GFLOPS),
                                  "--gigabytes", str(GIGABYTES)] + sizes, check=True, capture_output=True, text=True)
        self.layers = []
        for layer in json.loads(out.stdout)["layers"]:
            share = next((s for module, s in (shares or {}).items() if layer["name"].startswith(module)), 1)
            for time in ["forward_ms", "backward_ms"]:
                layer[time] *= share
                if layer["gradient_bytes"] == 0:  # backward computes it before the layer that it follows
                    self.layers[-1][time] += layer[time]
            if layer["gradient_bytes"] > 0:
                self.layers.append(layer)

    def forward_ms(self):
        return sum(layer["forward_ms"] for layer in self.layers)

    def backward_ms(self):
        return sum(layer["backward_ms"] for layer in self.layers)

    def parameters(self):
        return round(sum(layer["gradient_bytes"] for layer in self.layers) / BYTES)


def image_network(name, batch):
    return Network(name, "imagenet", batch)


def bert(batch, blocks, hidden, heads):
    """Devlin et al. 2019, with the heads of its pre-training: 110,106,428 parameters for BERT-Base. Sequences of 128
    words. In nine tenths of its pre-training 20 of them are predicted (github.com/google-research/bert); the traced
    network scores all 128, so the times of its heads are multiplied by 20/128."""
    config = {"model_type": "bert", "architectures": ["BertForPreTraining"], "num_hidden_layers": blocks,
              "hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": 4 * hidden}
    return Network("bert_base", "text", batch, config, {"cls": 20 / 128})


def slowness(net, samples_per_second):
    """How much slower than an ideal V100 a real one is, which trains so many samples per second."""
    return net.batch / samples_per_second * 1e3 / (net.forward_ms() + net.backward_ms())


# ---- The anchors: training on one V100 in FP32 with TensorFlow.
LAMBDA = ("Lambda Labs, github.com/lambdal/lambda-tensorflow-benchmark, tf-train-throughput-fp32.csv and "
          "tf-train-bs-fp32.csv, row \"V100 32GB\"")
NVIDIA = ("NVIDIA, github.com/NVIDIA/DeepLearningExamples, TensorFlow/LanguageModeling/BERT/README.md, "
          "pre-training on DGX-1 with V100 32GB, one GPU, FP32")
RESNET_SLOWNESS = slowness(image_network("resnet152", 96), 167)
VGG_SLOWNESS = slowness(image_network("vgg16", 192), 249)
BERT_SLOWNESS = slowness(bert(32, 24, 1024, 16), 46.78)

PROFILES = {
    "xception": (image_network("xception", 32), RESNET_SLOWNESS,
                 "no published training throughput of Xception on a V100 in FP32 was found; the slowness of ResNet-152 "
                 "is taken: 167 images/s with batches of 96 (" + LAMBDA + ")"),
    "resnet152": (image_network("resnet152", 32), RESNET_SLOWNESS, "167 images/s with batches of 96 (" + LAMBDA + ")"),
    "vgg16": (image_network("vgg16", 128), VGG_SLOWNESS, "249 images/s with batches of 192 (" + LAMBDA + ")"),
    "bert-base": (bert(32, 12, 768, 12), BERT_SLOWNESS,
                  "the slowness of BERT-Large: 46.78 sequences/s of 128 tokens with batches of 32 (" + NVIDIA + ")"),
}


def profile(net, slow, anchor):
    def rounded(ms):
        return float(f"{ms:.6g}")

    # p(c, r) and q(c, r) of LIBRA have the same constants here, in bytes that a rank sends per ms.
    curve = {"gamma1": GAMMA1, "gamma2": GAMMA2, "gamma3": GAMMA3, "gamma4": GAMMA4}
    return {
        "source": f"docs/profiles/make.py; {net.parameters()} parameters; times are {slow:.3f} times those of an "
                  f"ideal V100, from {anchor}",
        "layers": [{"name": layer["name"], "compute_ms": rounded(layer["backward_ms"] * slow),
                    "gradient_bytes": round(layer["gradient_bytes"])} for layer in reversed(net.layers)],
        "contention": {"alpha1": 1, "alpha2": ALPHA2, "overlapped": curve, "alone": curve},
        "hop_latency_ms": HOP_LATENCY_MS,
        "forward_ms": rounded(net.forward_ms() * slow),
        "batch_size": net.batch,
    }


def text(value):
    """JSON with a line for each key and each layer."""
    lines = []
    for key, entry in value.items():
        if key == "layers":
            rows = ",\n".join("  " + json.dumps(row) for row in entry)
            lines.append(f' "layers": [\n{rows}\n ]')
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    print(f"{'network':<10} {'layers':>6} {'parameters':>11} {'forward ms':>10} {'backward ms':>11} {'slowness':>8}")
    for name, (net, slow, anchor) in PROFILES.items():
        (folder / f"{name}.json").write_text(text(profile(net, slow, anchor)), encoding="utf-8")
        print(f"{name:<10} {len(net.layers):>6} {net.parameters():>11} {net.forward_ms() * slow:>10.1f} "
              f"{net.backward_ms() * slow:>11.1f} {slow:>8.3f}")


if __name__ == "__main__":
    main()
