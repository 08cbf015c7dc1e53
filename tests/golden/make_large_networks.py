#!/usr/bin/env python3
"""Writes large_networks.json beside itself: what the originals of the papers' networks compute from weights that a formula gives.

Needs torch, torchvision, timm, and transformers, which the tests do not (tests/golden/golden_large_networks_test.cpp, which has the same
formula). In evaluation mode, in f32: scores, the loss, and the norm of each parameter's gradient.
"""
import collections
import json
import pathlib

import timm
import torch
import torchvision.models as vision
import transformers
from torch.nn import functional as F


def pattern(shape, offset):
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    return (((i * 7919 + 13 * offset) % 997 - 498).double() / 498).reshape(shape)


def weight(name, shape):
    """By the name and the shape in Tandem, with channels before height and width."""
    p = pattern(shape, len(name))
    if name.endswith("running_var"):
        return (1 + 0.5 * p).float()
    if len(shape) == 1 and name.endswith("weight"):
        return (1 + 0.1 * p).float()
    if len(shape) == 1:
        return (0.1 * p).float()
    return (p * (6 / (torch.Size(shape).numel() / shape[0])) ** 0.5).float()


def images(side):
    return pattern((2, side, side, 3), 1).float().permute(0, 3, 1, 2).contiguous()


def words():
    return (1 + torch.arange(18) * 7 % 49).reshape(2, 9)


def identical(name, tensor):
    return [(name, tensor.shape, lambda t: t)]


def of_gpt2(name, tensor):
    """Its matrices are stored input first."""
    name = name.removeprefix("transformer.")
    is_stored_input_first = tensor.dim() == 2 and not name.startswith("wte") and not name.startswith("wpe")
    shape = tensor.shape[::-1] if is_stored_input_first else tensor.shape
    return [(name, shape, lambda t: t.T if is_stored_input_first else t)]


def of_bert(name, tensor):
    """Its queries, keys and values are parts of one of our layers."""
    for part, kind in enumerate(("query", "key", "value")):
        if f".self.{kind}." in name:
            count = tensor.shape[0]
            shape = torch.Size([3 * count, *tensor.shape[1:]])
            return [(name.replace(kind, "qkv"), shape, lambda t: t[part * count:(part + 1) * count])]
    return identical(name, tensor)


def assign(net, rule):
    for name, tensor in net.state_dict(keep_vars=True).items():
        if name.endswith("num_batches_tracked") or name == "lm_head.weight":
            continue
        for ours, shape, convert in rule(name, tensor):
            with torch.no_grad():
                tensor.copy_(convert(weight(ours, shape)))


def measured(net, rule, run, labels):
    net.eval()
    assign(net, rule)
    scores = run(net)
    loss = F.cross_entropy(scores, labels)
    loss.backward()
    squares = collections.Counter()
    for name, p in net.named_parameters():
        squares[rule(name, p)[0][0]] += p.grad.double().square().sum().item()
    norms = {name: square ** 0.5 for name, square in squares.items()}
    flat = scores.detach().double().flatten()
    return {"scores": flat[:: max(1, len(flat) // 40)].tolist(), "loss": loss.item(), "norms": norms}


def of_images(net, side, classes):
    return measured(net, identical, lambda n: n(images(side)), torch.tensor([1, classes - 1]))


def gpt2():
    config = transformers.GPT2Config(vocab_size=50, n_positions=12, n_embd=24, n_layer=2, n_head=3)
    return measured(transformers.GPT2LMHeadModel(config), of_gpt2,
                    lambda n: n(words()).logits[:, -1], torch.tensor([1, 49]))


def bert():
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=12, hidden_size=24, num_hidden_layers=2,
                                     num_attention_heads=3, intermediate_size=40, num_labels=3)
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    kinds = torch.arange(9).ge(4).long().expand(2, 9)
    return measured(transformers.BertForSequenceClassification(config), of_bert,
                    lambda n: n(words(), attention_mask=mask, token_type_ids=kinds).logits, torch.tensor([1, 2]))


def main():
    torch.set_num_threads(2)
    vit = vision.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=40, num_classes=7)
    nets = {
        "resnet18": of_images(vision.resnet18(), 64, 1000),
        "resnet50": of_images(vision.resnet50(), 64, 1000),
        "mobilenet_v3_large": of_images(vision.mobilenet_v3_large(), 64, 1000),
        "xception": of_images(timm.create_model("legacy_xception"), 96, 1000),
        "inception_v4": of_images(timm.create_model("inception_v4"), 96, 1000),
        "vit": of_images(vit, 32, 7),
        "gpt2": gpt2(),
        "bert": bert(),
    }
    versions = {p.__name__: p.__version__.split("+")[0] for p in (torch, timm, transformers)}
    document = {"versions": {**versions, "torchvision": __import__("torchvision").__version__.split("+")[0]}, "networks": nets}
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    pathlib.Path(__file__).with_name("large_networks.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
