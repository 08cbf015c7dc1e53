#!/usr/bin/env python3
"""Training steps of the same networks here and in PyTorch, in turn: median times and their ratios.

Installs nothing: needs a Python in which PyTorch imports, and build/release/bin/bench_step. Every pair runs some
steps of ours, then some of each variant of PyTorch's (memory format, eager or compiled) at the same batch and
number of threads, so that what disturbs the machine disturbs both.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, max_pool2d, pad, relu
except ImportError:
    sys.exit("vs_pytorch: PyTorch cannot be imported; run it with a Python that has it")

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(3072, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                         nn.Linear(256, 10))


class Snn(nn.Sequential):
    def __init__(self):
        layers = [nn.Flatten()]
        for i in range(32):
            layers += [nn.Linear(3072 if i == 0 else 2048, 2048), nn.SELU()]
        super().__init__(*layers, nn.Linear(2048, 10))


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (3, 16, 32, 64)
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for b in widths[1:])
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = max_pool2d(relu(norm(conv(x))), 2)
        return self.head(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.more, self.stride = outputs - inputs, stride

    def forward(self, x):
        y = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more // 2, self.more // 2))
        return relu(y + x)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(*[
            Block(a if b == 0 else c, c, 2 if b == 0 and c > 16 else 1)
            for a, c in ((16, 16), (16, 32), (32, 64)) for b in range(3)])
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        return self.fc(self.blocks(relu(self.bn1(self.conv1(x)))).mean((2, 3)))


class Vgg16(nn.Module):
    def __init__(self):
        super().__init__()
        layers, inputs = [], 3
        for count, width in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
            for _ in range(count):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096),
                                        nn.ReLU(), nn.Dropout(), nn.Linear(4096, 10))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


NETWORKS = {"mlp": Mlp, "convnet": ConvNet, "resnet20": ResNet20, "vgg16": Vgg16, "snn": Snn}


class Variant:
    """One way to run a network: a memory format, eager or compiled, f32 or bf16 autocast."""

    def __init__(self, network, channels_last, compiled, bf16, batch):
        self.name = ("channels-last" if channels_last else "contiguous") + (", compiled" if compiled else "")
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.model = NETWORKS[network]().to(memory_format=layout)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.images = torch.full((batch, 3, 32, 32), 1e-3).to(memory_format=layout)
        self.labels = torch.zeros(batch, dtype=torch.long)
        self.bf16 = bf16
        self.forward = torch.compile(self.model) if compiled else self.model

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            logits = self.forward(self.images)
        cross_entropy(logits.float(), self.labels).backward()
        self.optimizer.step()

    def milliseconds(self, steps):
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.step()
            times.append(1e3 * (time.perf_counter() - begin))
        return statistics.median(times)

    def peak_megabytes(self):
        """Of tensors, in one step: what lives before it, and the highest sum of its allocations."""
        alive = sum(t.numel() * t.element_size() for group in self.optimizer.param_groups for p in group["params"]
                    for t in (p, self.optimizer.state[p]["momentum_buffer"]))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            self.step()
        now = most = 0
        for event in sorted(profile.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
            if event.name() == "[memory]":
                now += event.nbytes()
                most = max(most, now)
        return (alive + most) / 1e6


def ours(network, arguments):
    command = [str(ROOT / "build/release/bin/bench_step"), network, "-b", str(arguments.batch_size), "--threads",
               str(arguments.threads), "--steps", str(arguments.steps)] + (["--bf16"] if arguments.bf16 else [])
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    fields = out.splitlines()[-1].split()
    return float(fields[1]), float(fields[-1])


def compare(network, arguments):
    variants = []
    image = network not in ("mlp", "snn")
    for channels_last in ((False, True) if image else (False,)):
        for compiled in ((False, True) if arguments.compile else (False,)):
            variant = Variant(network, channels_last, compiled, arguments.bf16, arguments.batch_size)
            for _ in range(2):
                variant.step()  # compiles, and makes the optimiser's state
            variants.append(variant)
    mine, theirs = [], {v.name: [] for v in variants}
    for _ in range(arguments.pairs):
        milliseconds, peak = ours(network, arguments)
        mine.append(milliseconds)
        for variant in variants:
            theirs[variant.name].append(variant.milliseconds(arguments.steps))
    for variant in variants:
        times = theirs[variant.name]
        ratio = statistics.median(t / m for t, m in zip(times, mine))
        print(f"{network:<10} {statistics.median(mine):9.2f} {peak:9.1f}   {variant.name:<26} "
              f"{statistics.median(times):9.2f} {variant.peak_megabytes():9.1f} {ratio:7.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("-b", "--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=5, help="of each in a pair")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--bf16", action="store_true", help="mixed precision in both")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="eager variants only")
    arguments = parser.parse_args()
    unknown = set(arguments.networks) - set(NETWORKS)
    if unknown:
        parser.error(f"unknown network {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    torch.set_num_threads(arguments.threads)
    print(f"PyTorch {torch.__version__}, batch {arguments.batch_size}, {arguments.threads} threads, medians of "
          f"{arguments.pairs} pairs")
    print(f"{'network':<10} {'ours ms':>9} {'peak MB':>9}   {'PyTorch':<26} {'ms':>9} {'peak MB':>9} {'ratio':>7}")
    for network in arguments.networks:
        compare(network, arguments)


if __name__ == "__main__":
    main()
