#!/usr/bin/env python3
"""Compares whole networks with their originals: logits, loss, and the gradient of every parameter.

The originals draw their weights and save them with their own functions; `tandem forward` loads these files. Then `tandem
convert-weights` writes the weights again, which the originals load with strict=True. Needs torch, torchvision, timm, and transformers.

    python bench/parity.py [--tandem build/release/bin/tandem] [network ...]
"""
import argparse
import copy
import pathlib
import subprocess
import tempfile

import torch
from safetensors.torch import load_file, save_file

from originals import NETWORKS



@torch.no_grad()
def warmed_up(net, batch, run):
    """A new network's batch norms have not seen an image: activations would vanish, and with them what could differ. So would a
    head of zeros."""
    for module in net.modules():
        if isinstance(module, torch.nn.Linear) and not module.weight.any():
            torch.nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean of all batches
    net.train()
    run(net, batch)
    return net.eval()


def tandem(program, *arguments):
    subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def relative(a, b):
    """The largest difference of any elements, as a share of the largest element."""
    return ((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-30)).item()


def compare(name, program):
    torch.manual_seed(1)
    original = NETWORKS[name](4)
    warmed_up(original.net, original.batch, original.run)
    network = name.split()[0]
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        weights = original.save(folder)
        save_file(original.batch, folder / "batch.safetensors")
        exact = results(original, torch.float64)

        def ours(dtype):
            tandem(program, "forward", network, "--for", original.purpose, "--weights", weights, "--batch", folder / "batch.safetensors",
                   "--output", folder / "out.safetensors", "--gradients", "--dtype", dtype)
            out = load_file(folder / "out.safetensors")
            return errors({key: out[stored_name(key, original, out)].double() for key in exact}, exact)
        double, single, theirs = ours("f64"), ours("f32"), errors(results(original, torch.float32), exact)
        names = ["--names", original.names] if original.names else []
        tandem(program, "convert-weights", network, "--for", original.purpose, weights, folder / "again.safetensors", *names)
        again = load_file(folder / "again.safetensors")
        strict(original, again)
        same = all(torch.equal(t, again[k]) for k, t in load_file(folder / "model.safetensors").items() if not k.endswith("num_batches_tracked"))
    columns = [", ".join(f"{e:.0e}" for e in three) for three in zip(double, single, theirs)]
    print(f"| `{network}` | {original.names or 'its own'} | {' | '.join(columns)} | {'the same bits' if same else 'OTHER BITS'} |", flush=True)
    return same and max(double) <= 1e-6 and all(a <= 5 * b + 1e-5 for a, b in zip(single, theirs))


def results(original, dtype):
    """In double: logits, loss, and gradients of the original, computed in this type."""
    net = copy.deepcopy(original.net).to(dtype)
    batch = {k: t.to(dtype) if t.is_floating_point() else t for k, t in original.batch.items()}
    y = original.run(net, batch)
    loss = original.loss(y, batch)
    loss.backward()
    logits = y[0] if isinstance(y, tuple) else y
    return {"logits": logits.detach().double(), "loss": loss.detach().double(),
            **{key: p.grad.to_dense().double() for key, p in net.named_parameters()}}


def errors(given, exact):
    """Of the logits, as a share of the largest; of the loss; and the largest of any gradient's norm. Some gradients are 0 but for
    rounding, as those of the keys' biases: none counts as smaller than a thousandth of the largest norm."""
    norms = {k: t.norm() for k, t in exact.items() if k not in ("logits", "loss")}
    largest = max(norms.values())
    off = max(((given[k].norm() - n).abs() / n.clamp_min(1e-3 * largest)).item() for k, n in norms.items())
    return relative(given["logits"], exact["logits"]), abs(given["loss"].item() / exact["loss"].item() - 1), off


def stored_name(key, original, ours):
    """The name of logits, loss, or a gradient in the file. transformers' ViT has other names in memory than in its files."""
    if key in ("logits", "loss"):
        return key
    name = f"grad.{original.stored(key)}"
    if name in ours:
        return name
    if original.names == "huggingface" and original.purpose == "imagenet":
        for memory, file in ((".layers.", ".encoder.layer."), (".attention.q_proj.", ".attention.attention.query."),
                             (".attention.k_proj.", ".attention.attention.key."), (".attention.v_proj.", ".attention.attention.value."),
                             (".attention.o_proj.", ".attention.output.dense."), (".mlp.fc1.", ".intermediate.dense."),
                             (".mlp.fc2.", ".output.dense.")):
            name = name.replace(memory, file)
        return name
    raise KeyError(name)


def strict(original, state):
    if original.names == "huggingface":  # load_state_dict knows neither its own old names nor tied weights
        with tempfile.TemporaryDirectory() as directory:
            original.net.config.save_pretrained(directory)
            save_file(state, pathlib.Path(directory) / "model.safetensors", {"format": "pt"})
            _, info = type(original.net).from_pretrained(directory, output_loading_info=True)
            assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    else:
        assert state.keys() == {original.stored(k) for k in original.net.state_dict()}
        original.net.load_state_dict({k: state[original.stored(k)] for k in original.net.state_dict()}, strict=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    print("Errors against PyTorch in f64: of Tandem in f64, of Tandem in f32, of PyTorch in f32.\n\n"
          "| Network | Names | Logits | Loss | Gradients' norms | Written again |\n|---|---|---|---|---|---|")
    bad = [name for name in arguments.networks if not compare(name, arguments.tandem)]
    if bad:
        raise SystemExit(f"other bits, or errors above 1e-6 in f64, or five times PyTorch's in f32: {', '.join(bad)}")


if __name__ == "__main__":
    main()
