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
from torch.nn import functional as F


def images(side, samples=4):
    return {"images": torch.randn(samples, 3, side, side), "labels": torch.randint(1000, (samples,))}


def vision(name, side, **options):
    import torchvision
    net = torchvision.models.get_model(name, **options)
    return Original("torchvision", "imagenet", net, images(side), lambda n, b: n(b["images"]))


def timm(name, side):
    import timm
    return Original("timm", "imagenet", timm.create_model(name), images(side), lambda n, b: n(b["images"]))


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


def transformer_words(words):
    return {"input_ids": torch.randint(words, (2, 64))}


def gpt2():
    import transformers
    batch = transformer_words(50257)
    batch["labels"] = batch["input_ids"].clone()
    return Original("huggingface", "text", transformers.GPT2LMHeadModel(transformers.GPT2Config()), batch,
                    lambda n, b: n(input_ids=b["input_ids"]).logits,
                    lambda y, b: F.cross_entropy(y[:, :-1].flatten(0, 1), b["labels"][:, 1:].flatten()))


def bert():
    import transformers
    batch = transformer_words(30522)
    batch["attention_mask"] = torch.ones(2, 64, dtype=torch.int64)
    batch["attention_mask"][1, 50:] = 0
    batch["token_type_ids"] = (torch.arange(64) >= 30).long().expand(2, 64).contiguous()
    batch["labels"] = torch.where(torch.rand(2, 64) < 0.15, batch["input_ids"], -100)
    batch["next_sentence_label"] = torch.tensor([0, 1])
    net = transformers.BertForPreTraining(transformers.BertConfig())
    keys = ("input_ids", "attention_mask", "token_type_ids")

    def loss(y, b):
        return F.cross_entropy(y[0].flatten(0, 1), b["labels"].flatten()) + F.cross_entropy(y[1], b["next_sentence_label"])

    def run(n, b):
        out = n(**{k: b[k] for k in keys})
        return out.prediction_logits, out.seq_relationship_logits
    return Original("huggingface", "text", net, batch, run, loss)


def vit_huggingface():
    import transformers
    net = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))
    return Original("huggingface", "imagenet", net, images(224), lambda n, b: n(b["images"]).logits)


class TextTransformer(torch.nn.Module):
    def __init__(self, words=20_000, width=512, classes=2):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)
        self.transformer = torch.nn.Transformer(width, 8, 6, 6, 512, batch_first=True)
        self.head = torch.nn.Linear(width, classes)
        angles = torch.arange(512)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], 2).flatten(1))

    def forward(self, ids):
        x = self.embedding(ids) + self.positions[:ids.shape[1]]
        return self.head(self.transformer(x, x).mean(1))


def transformer():
    batch = {"input_ids": torch.randint(20_000, (4, 20)), "labels": torch.randint(2, (4,))}
    return Original("torch", "text", TextTransformer(), batch, lambda n, b: n(b["input_ids"]))


class Original:
    def __init__(self, names, purpose, net, batch, run, loss=lambda y, b: F.cross_entropy(y, b["labels"])):
        self.names, self.purpose, self.net, self.batch, self.run, self.loss = names, purpose, net, batch, run, loss
        warmed_up(net, batch, run)

    def save(self, folder):
        """With its own function; the weights of torchvision and timm are state_dicts."""
        if self.names == "huggingface":
            self.net.save_pretrained(folder)
            return folder
        save_file(self.net.state_dict(), folder / "model.safetensors")
        return folder / "model.safetensors"


NETWORKS = {
    "vgg16": lambda: vision("vgg16", 224),
    "resnet18": lambda: vision("resnet18", 224),
    "resnet50": lambda: vision("resnet50", 224),
    "resnet101": lambda: vision("resnet101", 224),
    "resnet152": lambda: vision("resnet152", 224),
    "mobilenet_v3_large": lambda: vision("mobilenet_v3_large", 224),
    "xception": lambda: timm("legacy_xception", 299),
    "inception_v4": lambda: timm("inception_v4", 299),
    "vit_b_16": lambda: vision("vit_b_16", 224),
    "vit_b_16 timm": lambda: timm("vit_base_patch16_224", 224),
    "vit_b_16 huggingface": vit_huggingface,
    "gpt2": gpt2,
    "bert_base": bert,
    "transformer": transformer,
}


def tandem(program, *arguments):
    subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def relative(a, b):
    """The largest difference of any elements, as a share of the largest element."""
    return ((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-30)).item()


def compare(name, program):
    torch.manual_seed(1)
    original = NETWORKS[name]()
    network = name.split()[0]
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        weights = original.save(folder)
        save_file(original.batch, folder / "batch.safetensors")
        tandem(program, "forward", network, "--for", original.purpose, "--weights", weights, "--batch", folder / "batch.safetensors",
               "--output", folder / "out.safetensors", "--gradients")
        ours = load_file(folder / "out.safetensors")
        single, exact = results(original, torch.float32), results(original, torch.float64)
        mine = {"logits": ours["logits"].double(), "loss": ours["loss"].double(),
                **{key: ours[stored_name(key, original, ours)].double() for key in exact if key not in ("logits", "loss")}}
        tandem(program, "convert-weights", network, "--for", original.purpose, weights, folder / "again.safetensors", "--names",
               original.names)
        again = load_file(folder / "again.safetensors")
        strict(original, again)
        same = all(torch.equal(t, again[k]) for k, t in load_file(folder / "model.safetensors").items() if not k.endswith("num_batches_tracked"))
    columns = [f"{a:.1e}, {b:.1e}" for a, b in zip(errors(mine, exact), errors(single, exact))]
    print(f"| `{network}` | {original.names} | {' | '.join(columns)} | {'the same bits' if same else 'OTHER BITS'} |", flush=True)


def results(original, dtype):
    """In double: logits, loss, and gradients of the original, computed in this type."""
    net = copy.deepcopy(original.net).to(dtype)
    batch = {k: t.to(dtype) if t.is_floating_point() else t for k, t in original.batch.items()}
    y = original.run(net, batch)
    loss = original.loss(y, batch)
    loss.backward()
    logits = y[0] if isinstance(y, tuple) else y
    return {"logits": logits.detach().double(), "loss": loss.detach().double(),
            **{key: p.grad.double() for key, p in net.named_parameters()}}


def errors(given, exact):
    """Of the logits, as a share of the largest; of the loss; and the largest of any gradient's norm. Some gradients are 0 but for
    rounding, as those of the keys' biases: none counts as smaller than a thousandth of the largest norm."""
    norms = {k: t.norm() for k, t in exact.items() if k not in ("logits", "loss")}
    largest = max(norms.values())
    off = max(((given[k].norm() - n).abs() / n.clamp_min(1e-3 * largest)).item() for k, n in norms.items())
    return relative(given["logits"], exact["logits"]), abs(given["loss"].item() / exact["loss"].item() - 1), off


def stored_name(key, original, ours):
    """The gradient's name in the file. transformers' ViT has other names in memory than in its files."""
    name = f"grad.{key}"
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
        original.net.load_state_dict(state, strict=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    print("Errors of Tandem and of PyTorch, both in f32, against PyTorch in f64.\n\n"
          "| Network | Names | Logits | Loss | Gradients' norms | Written again |\n|---|---|---|---|---|---|")
    for name in arguments.networks:
        compare(name, arguments.tandem)


if __name__ == "__main__":
    main()
