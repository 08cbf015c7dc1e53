#!/usr/bin/env python3
"""Compares training steps of the same networks in Tandem and PyTorch, in turn: median times and ratios.

Needs a Python that can import PyTorch, and build/release/bin/bench_step; installs nothing. Every pair runs
some steps in Tandem, then some in each variant of PyTorch (memory format, eager or compiled, plain or fused
optimizer) with the same batch and number of threads, so that a disturbance of the machine affects both.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("vs_pytorch: PyTorch cannot be imported; run it with a Python that has it")

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/golden"))
import originals  # noqa: E402
from torch_networks import NETWORKS  # noqa: E402


# Samples of a batch, unless --batch-size says another number.
BATCHES = {"xception": 8, "inception_v4": 8, "vit_b_16": 8, "vit_60m": 8, "gpt2": 4, "bert_base": 4, "transformer": 32,
           "residual_lstm": 32, "dlrm": 512}
BATCH_OF_IMAGES = {"cifar": 128, "imagenet": 16}
BENCH_STEP = ROOT / "build/release/bin/bench_step"
IMAGENET = "-imagenet"  # vgg16-imagenet, because CIFAR has a vgg16 too
WITHOUT_MOMENTUM = ("dlrm",)  # so that tables can have sparse updates


def original_of(network, samples):
    """The network in PyTorch, and a batch."""
    if network in NETWORKS:  # CIFAR's
        batch = {"images": torch.randn(samples, 3, 32, 32), "labels": torch.randint(10, (samples,))}
        return originals.Original("", "cifar", NETWORKS[network](), batch, lambda n, b: n(b["images"]))
    return originals.NETWORKS[network.removesuffix(IMAGENET)](samples)


def samples_of(network, arguments):
    return arguments.batch_size or BATCHES.get(network) or BATCH_OF_IMAGES["cifar" if network in NETWORKS else "imagenet"]


class Variant:
    """One way to run a network: a memory format, eager or compiled, a fused optimizer, f32 or bf16 autocast."""

    def __init__(self, network, channels_last, compiled, fused, bf16, samples):
        self.name = ("channels-last" if channels_last else "contiguous") + (", compiled" if compiled else "") + (
            ", fused" if fused else "")
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.original = original_of(network, samples)
        if network == "dlrm" and fused:  # fused optimizers take dense gradients only
            self.original.net = originals.Dlrm(sparse=False)
        self.model = self.original.net.to(memory_format=layout).train()
        self.batch = {k: t.to(memory_format=layout) if t.dim() == 4 else t for k, t in self.original.batch.items()}
        momentum = 0 if network in WITHOUT_MOMENTUM else 0.9
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=momentum, fused=fused)
        self.bf16 = bf16
        self.forward = torch.compile(self.model) if compiled else self.model

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            y = self.original.run(self.forward, self.batch)
        y = tuple(t.float() for t in y) if isinstance(y, tuple) else y.float()
        self.original.loss(y, self.batch).backward()
        self.optimizer.step()

    def milliseconds(self, steps):
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.step()
            times.append(1e3 * (time.perf_counter() - begin))
        return statistics.median(times)

    def peak_megabytes(self):
        """Returns the bytes of tensors before a step plus the highest sum of its allocations, in MB."""
        tensors = list(self.batch.values())
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                tensors += [p] + [t for t in self.optimizer.state[p].values() if t is not None]
        alive = sum(t.numel() * t.element_size() for t in tensors)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            self.step()
        now = most = 0
        for event in sorted(profile.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
            if event.name() == "[memory]":
                now += event.nbytes()
                most = max(most, now)
        return (alive + most) / 1e6


def ours(network, purpose, arguments):
    """Returns the milliseconds of a step, and the planned peak in MB, which is the same in each run."""
    command = [str(BENCH_STEP), network.removesuffix(IMAGENET), "-b", str(samples_of(network, arguments)), "--threads",
               str(arguments.threads), "--steps", str(arguments.steps)] + (["--bf16"] if arguments.bf16 else [])
    if network in WITHOUT_MOMENTUM:
        command += ["--momentum", "0"]
    if purpose:
        command += ["--for", purpose]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    fields = next(line.split() for line in out.splitlines() if line.startswith(command[1] + " "))
    return float(fields[1]), float(fields[-1])


def count_steps(network, arguments):
    """A process of one model: warms up, reads when to begin, and prints how many steps end in the window."""
    channels_last, compiled = "channels-last" in arguments.count, "compiled" in arguments.count
    variant = Variant(network, channels_last, compiled, True, arguments.bf16, samples_of(network, arguments))
    for _ in range(3):
        variant.step()
    print("ready", flush=True)
    begin, steps = float(sys.stdin.readline()), 0
    while time.monotonic() < begin + arguments.seconds:
        variant.step()
        steps += begin <= time.monotonic() < begin + arguments.seconds
    print(steps, flush=True)


def steps_of_processes(network, variant, arguments):
    """Steps per second of a PyTorch process for each model, with one thread each, all at once."""
    command = [sys.executable, __file__, network, "--threads", "1", "--count", variant, "--seconds", str(arguments.seconds),
               "-b", str(samples_of(network, arguments))] + ["--bf16"] * arguments.bf16
    children = []
    for _ in range(arguments.models):  # one after the other, so that the first compiles for all
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if child.stdout.readline() != "ready\n":
            sys.exit("vs_pytorch: a process of one model failed")
        children.append(child)
    begin = time.monotonic() + 0.5
    for child in children:
        child.stdin.write(f"{begin}\n")
        child.stdin.flush()
    steps = sum(int(child.stdout.readline()) for child in children)
    for child in children:
        child.wait()
    return steps / arguments.seconds


def compare_models(network, arguments):
    """Several models side by side in Tandem, against a process of PyTorch for each."""
    command = [str(BENCH_STEP.with_name("bench_models")), network, "--models", str(arguments.models), "--threads",
               str(arguments.threads), "--rounds", "1", "--seconds", str(arguments.seconds), "-b",
               str(samples_of(network, arguments)), "--no-augment"]
    variants = ["contiguous", "channels-last"] + ["contiguous, compiled", "channels-last, compiled"] * arguments.compile
    mine, theirs = [], {v: [] for v in variants}
    for _ in range(arguments.pairs):
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        mine.append(next(float(line.split()[-5]) for line in lines if " arrays of one on " in line))  # the default of large networks
        for variant in variants:
            theirs[variant].append(steps_of_processes(network, variant, arguments))
    for variant, steps in theirs.items():
        ratio = statistics.median(m / t for t, m in zip(steps, mine))
        print(f"{arguments.models} x {network:<14} {statistics.median(mine):9.1f} steps/s   {variant + ', fused':<32} "
              f"{statistics.median(steps):9.1f} steps/s {ratio:7.2f}", flush=True)


def compare(network, arguments):
    variants, samples = [], samples_of(network, arguments)
    original = original_of(network, 2)
    image = network not in ("mlp", "mlp-residual", "snn") and "images" in original.batch
    purpose = original.purpose if network not in NETWORKS else ""
    del original
    for channels_last in ((False, True) if image else (False,)):
        for compiled in ((False, True) if arguments.compile else (False,)):
            for fused in (False, True) if network in NETWORKS or network == "dlrm" else (True,):  # large: memory is scarce
                try:
                    variant = Variant(network, channels_last, compiled, fused, arguments.bf16, samples)
                    for _ in range(2):
                        variant.step()  # compiles, and makes the optimizer's state
                    variants.append(variant)
                except (RuntimeError, NotImplementedError) as e:
                    print(f"{network}: PyTorch cannot run{' compiled' * compiled}{' fused' * fused}: {str(e).splitlines()[0]}")
    mine, theirs = [], {v.name: [] for v in variants}
    for _ in range(arguments.pairs):
        milliseconds, peak = ours(network, purpose, arguments)
        mine.append(milliseconds)
        for variant in variants:
            theirs[variant.name].append(variant.milliseconds(arguments.steps))
    for variant in variants:
        times = theirs[variant.name]
        ratio = statistics.median(t / m for t, m in zip(times, mine))
        print(f"{network:<18} {statistics.median(mine):9.2f} {peak:9.1f}   {variant.name:<32} "
              f"{statistics.median(times):9.2f} {variant.peak_megabytes():9.1f} {ratio:7.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["mlp", "convnet", "resnet20", "vgg16", "snn"], help=f"of {', '.join([*NETWORKS, *originals.NETWORKS])}")
    parser.add_argument("-b", "--batch-size", type=int, default=0, help="0: 128 for CIFAR, 16 for ImageNet, ...")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, default=5, help="steps of each side in a pair")
    parser.add_argument("--pairs", type=int, default=5, choices=range(1, 100), metavar="PAIRS")
    parser.add_argument("--bf16", action="store_true", help="mixed precision in both")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="eager variants only")
    parser.add_argument("--models", type=int, default=1, help="train so many models: side by side, and in a PyTorch process each")
    parser.add_argument("--seconds", type=float, default=10, help="of a measurement with --models")
    parser.add_argument("--count", help=argparse.SUPPRESS)  # a process of one model
    arguments = parser.parse_args()
    known = [*NETWORKS, *originals.NETWORKS, "vgg16" + IMAGENET]
    unknown = set(arguments.networks) - set(known)
    if unknown:
        parser.error(f"unknown network {', '.join(unknown)}; there are {', '.join(known)}")
    if not BENCH_STEP.exists():
        parser.error(f"{BENCH_STEP} is not there: cmake --build --preset release --target bench_step")
    torch.set_num_threads(arguments.threads)
    if arguments.count:
        return count_steps(arguments.networks[0], arguments)
    print(f"PyTorch {torch.__version__}, {arguments.threads} threads, medians of "
          f"{arguments.pairs} pairs")
    if arguments.models > 1:
        if arguments.bf16 or not BENCH_STEP.with_name("bench_models").exists():
            parser.error("--models compares f32, and needs bench_models beside bench_step")
        for network in arguments.networks:
            compare_models(network, arguments)
        return
    print(f"{'network':<18} {'ours ms':>9} {'peak MB':>9}   {'PyTorch':<32} {'ms':>9} {'peak MB':>9} {'ratio':>7}")
    for network in arguments.networks:
        compare(network, arguments)


if __name__ == "__main__":
    main()
