#!/usr/bin/env python3
"""Writes the profiles of this folder: xception.json, resnet152.json, vgg16.json, bert-base.json.

Each is the backward pass of one network of LIBRA's Table I on one V100 of the paper's cluster. Nothing was run: the
numbers follow from the layers of the networks and from published figures, each with its source below. Usage:
python3 make.py [DIRECTORY]. It needs only Python's standard library.

How the times are made: an op takes max(flops / peak, bytes / bandwidth) on an ideal V100. A published training
throughput says how much slower the whole network is. This factor, one for each network, multiplies all its times.
"""
import json
import math
import pathlib
import sys

# ---- The device: NVIDIA Tesla V100 SXM2 data sheet: 15.7 TFLOPS in single precision, 900 GB/s.
PEAK_FLOPS_PER_MS = 15.7e9
BYTES_PER_MS = 900e6
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
    """The layers of a network that have parameters, in the order of forward, with the ideal times of a batch."""

    def __init__(self, batch):
        self.batch = batch
        self.rows = []  # name, parameters, forward ms, backward ms

    def ms(self, macs, values):
        """Of an op that multiplies and adds `macs` times, and reads and writes `values` numbers."""
        return max(2 * macs / PEAK_FLOPS_PER_MS, BYTES * values / BYTES_PER_MS)

    def add(self, name, parameters, forward, backward):
        self.rows.append([name, parameters, forward, backward])

    def also(self, forward, backward):
        """An op without parameters, after the last layer. Backward computes it before that layer."""
        self.rows[-1][2] += forward
        self.rows[-1][3] += backward

    def product(self, name, macs, weights, read, written, bias=0, input_gradient=True):
        """A convolution or a dense layer. Backward: the gradient of its weights, and that of its input."""
        once = self.ms(macs, read + written + weights)
        self.add(name, weights + bias, once, once * (2 if input_gradient else 1))

    def conv(self, name, size, out_size, channels, out_channels, kernel, groups=1, bias=False, input_gradient=True):
        weights = kernel * kernel * channels // groups * out_channels
        positions = self.batch * out_size**2
        self.product(name, positions * weights, weights, self.batch * size**2 * channels,
                     positions * out_channels, out_channels * bias, input_gradient)

    def dense(self, name, rows, inputs, outputs, tied=False):
        weights = inputs * outputs
        self.product(name, rows * weights, weights, rows * inputs, rows * outputs, outputs)
        if tied:  # the weights are another layer's
            self.rows[-1][1] -= weights

    def norm(self, name, values, channels):
        """Batch or layer normalization: reads twice and writes; backward reads both values twice."""
        self.add(name, 2 * channels, self.ms(0, 3 * values), self.ms(0, 5 * values))

    def pointwise(self, values):
        """ReLU, GELU, dropout, softmax: reads and writes; backward also reads what forward kept."""
        self.also(self.ms(0, 2 * values), self.ms(0, 3 * values))

    def sum(self, values):
        """A residual: reads two values and writes their sum; backward adds the gradients of both ways."""
        self.also(self.ms(0, 3 * values), self.ms(0, 3 * values))

    def forward_ms(self):
        return sum(row[2] for row in self.rows)

    def backward_ms(self):
        return sum(row[3] for row in self.rows)

    def parameters(self):
        return sum(row[1] for row in self.rows)


def vgg16(batch):
    """Simonyan and Zisserman 2015, configuration D: 138,357,544 parameters."""
    net, channels, size = Network(batch), 3, 224
    for block, (out, count) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
        for i in range(1, count + 1):
            net.conv(f"conv{block}_{i}", size, size, channels, out, 3, bias=True, input_gradient=channels != 3)
            net.pointwise(batch * size**2 * out)
            channels = out
        size //= 2
    for name, inputs, outputs in [("fc6", 512 * 7 * 7, 4096), ("fc7", 4096, 4096), ("fc8", 4096, 1000)]:
        net.dense(name, batch, inputs, outputs)
    return net


def resnet152(batch):
    """He et al. 2016, Table 1, the first 1×1 convolution of a stage with the stride: 60,192,808 parameters."""
    net = Network(batch)

    def conv_norm(name, size, out_size, channels, out, kernel, relu=True, input_gradient=True):
        net.conv(name, size, out_size, channels, out, kernel, input_gradient=input_gradient)
        net.norm(f"{name}.bn", batch * out_size**2 * out, out)
        if relu:
            net.pointwise(batch * out_size**2 * out)

    conv_norm("conv1", 224, 112, 3, 64, 7, input_gradient=False)
    channels, size = 64, 56
    for stage, (width, blocks) in enumerate([(64, 3), (128, 8), (256, 36), (512, 3)], 2):
        for b in range(1, blocks + 1):
            name, out_size = f"conv{stage}_{b}", size // 2 if b == 1 and stage > 2 else size
            if b == 1:
                conv_norm(f"{name}.shortcut", size, out_size, channels, 4 * width, 1, relu=False)
            conv_norm(f"{name}.1", size, out_size, channels, width, 1)
            conv_norm(f"{name}.2", out_size, out_size, width, width, 3)
            conv_norm(f"{name}.3", out_size, out_size, width, 4 * width, 1)  # ReLU comes after the sum
            net.sum(batch * out_size**2 * 4 * width)
            channels, size = 4 * width, out_size
    net.dense("fc", batch, 2048, 1000)
    return net


def xception(batch):
    """Chollet 2017, Fig. 5, with images of 299 × 299 as in Keras: 22,855,952 trained parameters. With the running
    means and variances of its batch norms, which no all-reduce sums, they are the 22,910,480 that Keras counts."""
    net = Network(batch)

    def norm(name, size, channels, relu):
        net.norm(f"{name}.bn", batch * size**2 * channels, channels)
        if relu:
            net.pointwise(batch * size**2 * channels)

    def separable(name, size, channels, out, relu=True):
        net.conv(f"{name}.depthwise", size, size, channels, channels, 3, groups=channels)
        net.conv(f"{name}.pointwise", size, size, channels, out, 1)
        norm(name, size, out, relu)

    net.conv("block1_conv1", 299, 149, 3, 32, 3, input_gradient=False)
    norm("block1_conv1", 149, 32, relu=True)
    net.conv("block1_conv2", 149, 147, 32, 64, 3)
    norm("block1_conv2", 147, 64, relu=True)

    def block(name, size, out_size, channels, middle, out):
        net.conv(f"{name}_shortcut", size, out_size, channels, out, 1)
        norm(f"{name}_shortcut", out_size, out, relu=False)
        separable(f"{name}_sepconv1", size, channels, middle)
        separable(f"{name}_sepconv2", size, middle, out)
        net.sum(batch * out_size**2 * out)

    block("block2", 147, 74, 64, 128, 128)
    block("block3", 74, 37, 128, 256, 256)
    block("block4", 37, 19, 256, 728, 728)
    for b in range(5, 13):
        for i in range(1, 4):
            separable(f"block{b}_sepconv{i}", 19, 728, 728)
        net.sum(batch * 19**2 * 728)
    block("block13", 19, 10, 728, 728, 1024)
    separable("block14_sepconv1", 10, 1024, 1536)
    separable("block14_sepconv2", 10, 1536, 2048)
    net.dense("predictions", batch, 2048, 1000)
    return net


def bert(batch, blocks, hidden, heads, tokens=128, predictions=20, vocabulary=30522, positions=512):
    """Devlin et al. 2019, with the heads of its pre-training: 110,106,428 parameters for BERT-Base. Sequences of 128
    tokens with 20 predictions, as in nine tenths of its pre-training (github.com/google-research/bert). The output
    weights are the word embeddings, whose gradient is complete only at the end of backward."""
    net, rows = Network(batch), batch * tokens
    values = rows * hidden
    # The gradient of the word embeddings is as large as they are; backward writes all of it.
    net.add("embeddings.word", vocabulary * hidden, net.ms(0, 2 * values), net.ms(0, values + vocabulary * hidden))
    net.add("embeddings.position", positions * hidden, net.ms(0, 3 * values), net.ms(0, values))
    net.add("embeddings.type", 2 * hidden, net.ms(0, 3 * values), net.ms(0, values))
    net.norm("embeddings.norm", values, hidden)
    net.pointwise(values)  # dropout
    scores = batch * heads * tokens**2
    for b in range(blocks):
        for part in ["query", "key", "value"]:
            net.dense(f"block{b}.{part}", rows, hidden, hidden)
        product = net.ms(scores * hidden // heads, 2 * values + scores)
        net.also(2 * product, 4 * product)  # scores, and values by scores
        net.pointwise(scores)  # softmax
        net.pointwise(scores)  # dropout
        net.dense(f"block{b}.attention", rows, hidden, hidden)
        net.pointwise(values)
        net.sum(values)
        net.norm(f"block{b}.attention.norm", values, hidden)
        net.dense(f"block{b}.intermediate", rows, hidden, 4 * hidden)
        net.pointwise(4 * values)  # GELU
        net.dense(f"block{b}.output", rows, 4 * hidden, hidden)
        net.pointwise(values)
        net.sum(values)
        net.norm(f"block{b}.output.norm", values, hidden)
    net.dense("pooler", batch, hidden, hidden)
    net.dense("predictions.transform", batch * predictions, hidden, hidden)
    net.pointwise(batch * predictions * hidden)
    net.norm("predictions.norm", batch * predictions * hidden, hidden)
    net.dense("predictions.output", batch * predictions, hidden, vocabulary, tied=True)
    net.pointwise(batch * predictions * vocabulary)  # softmax
    net.dense("next_sentence", batch, hidden, 2)
    return net


def slowness(net, samples_per_second):
    """How much slower than an ideal V100 a real one is, which trains so many samples per second."""
    return net.batch / samples_per_second * 1e3 / (net.forward_ms() + net.backward_ms())


# ---- The anchors: training on one V100 in FP32 with TensorFlow.
LAMBDA = ("Lambda Labs, github.com/lambdal/lambda-tensorflow-benchmark, tf-train-throughput-fp32.csv and "
          "tf-train-bs-fp32.csv, row \"V100 32GB\"")
NVIDIA = ("NVIDIA, github.com/NVIDIA/DeepLearningExamples, TensorFlow/LanguageModeling/BERT/README.md, "
          "pre-training on DGX-1 with V100 32GB, one GPU, FP32")
RESNET_SLOWNESS = slowness(resnet152(96), 167)
VGG_SLOWNESS = slowness(vgg16(192), 249)
BERT_SLOWNESS = slowness(bert(32, 24, 1024, 16), 46.78)

PROFILES = {
    "xception": (xception(32), RESNET_SLOWNESS,
                 "no published training throughput of Xception on a V100 in FP32 was found; the slowness of ResNet-152 "
                 "is taken: 167 images/s with batches of 96 (" + LAMBDA + ")"),
    "resnet152": (resnet152(32), RESNET_SLOWNESS, "167 images/s with batches of 96 (" + LAMBDA + ")"),
    "vgg16": (vgg16(128), VGG_SLOWNESS, "249 images/s with batches of 192 (" + LAMBDA + ")"),
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
        "layers": [{"name": name, "compute_ms": rounded(backward * slow), "gradient_bytes": BYTES * parameters}
                   for name, parameters, _, backward in reversed(net.rows)],
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
        print(f"{name:<10} {len(net.rows):>6} {net.parameters():>11} {net.forward_ms() * slow:>10.1f} "
              f"{net.backward_ms() * slow:>11.1f} {slow:>8.3f}")


if __name__ == "__main__":
    main()
