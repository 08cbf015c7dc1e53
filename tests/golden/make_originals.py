#!/usr/bin/env python3
"""Writes originals/ beside itself: small networks of torchvision, timm, transformers, and torch with their own random weights, saved by
their own functions, and what they compute in f64. Networks of one size get weights by a formula, which golden_originals_test.cpp has, too.

Needs torch, torchvision, timm, and transformers, which the tests do not (tests/golden/golden_originals_test.cpp). In evaluation mode:
logits, loss, the norm of each gradient and its product with a pattern, and the losses of five steps of gradient descent.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from originals import ResidualLstmNet  # noqa: E402

FOLDER = pathlib.Path(__file__).with_name("originals")


def pattern(shape, seed):
    """Numbers from -1 to 1 that look random."""
    x = (torch.arange(torch.Size(shape).numel(), dtype=torch.int64) + 1) * (2 * seed + 40_503) % 2 ** 31
    x = (x ^ (x >> 15)) * 48_271 % 2 ** 31
    return ((x ^ (x >> 13)).double() / 2 ** 30 - 1).reshape(shape)


def images(side):
    return pattern((2, side, side, 3), 1).float().permute(0, 3, 1, 2).contiguous()


def words():
    return (1 + torch.arange(18) * 7 % 49).reshape(2, 9)


def batch_of_words():
    return {"input_ids": words()}


def batch_of_images():
    return {"images": images(32), "labels": torch.tensor([1, 6])}


def gpt2(kind):
    import transformers
    net = getattr(transformers, kind)(transformers.GPT2Config(vocab_size=50, n_positions=12, n_embd=24, n_layer=2, n_head=3))
    batch = {**batch_of_words(), "labels": words()}

    def logits(net, b):
        body = net.transformer if hasattr(net, "transformer") else net
        return F.linear(body(b["input_ids"]).last_hidden_state, body.wte.weight)
    return net, batch, logits, lambda y, b: F.cross_entropy(y[:, :-1].flatten(0, 1), b["labels"][:, 1:].flatten())


def bert_batch():
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    return {**batch_of_words(), "attention_mask": mask, "token_type_ids": torch.arange(9).ge(4).long().expand(2, 9).contiguous()}


def bert(kind, labels, loss, run):
    import transformers
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=12, hidden_size=24, num_hidden_layers=2,
                                     num_attention_heads=3, intermediate_size=40, num_labels=3)
    batch = bert_batch()
    keys = list(batch)
    return getattr(transformers, kind)(config), {**batch, **labels}, lambda net, b: run(net(**{k: b[k] for k in keys})), loss


def bert_pretraining():
    masked = torch.where(torch.arange(18).reshape(2, 9) % 3 == 0, words(), -100)
    labels = {"labels": masked, "next_sentence_label": torch.tensor([0, 1])}

    def loss(y, b):
        return F.cross_entropy(y[0].flatten(0, 1), b["labels"].flatten()) + F.cross_entropy(y[1], b["next_sentence_label"])
    return bert("BertForPreTraining", labels, loss, lambda out: (out.prediction_logits, out.seq_relationship_logits))


def cross_entropy(y, b):
    return F.cross_entropy(y, b["labels"])


def bert_classifier():
    return bert("BertForSequenceClassification", {"labels": torch.tensor([1, 2])}, cross_entropy, lambda out: out.logits)


def bert_body():
    return bert("BertModel", {"labels": torch.tensor([1, 20])}, cross_entropy, lambda out: out.pooler_output)


def vit_huggingface():
    import transformers
    config = transformers.ViTConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                                    image_size=32, patch_size=8, num_labels=7)
    return transformers.ViTForImageClassification(config), batch_of_images(), lambda net, b: net(b["images"]).logits, cross_entropy


def vit_timm():
    from timm.models.vision_transformer import VisionTransformer
    net = VisionTransformer(img_size=32, patch_size=8, num_classes=7, embed_dim=24, depth=2, num_heads=3, mlp_ratio=2)
    return net, batch_of_images(), lambda net, b: net(b["images"]), cross_entropy


def vit_torchvision():
    from torchvision.models import VisionTransformer
    net = VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=40, num_classes=7)
    torch.nn.init.normal_(net.heads.head.weight, std=0.1)  # is 0: no other gradient would be left
    return net, batch_of_images(), lambda net, b: net(b["images"]), cross_entropy


def mobilenet():
    from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf
    settings, _ = _mobilenet_v3_conf("mobilenet_v3_large", width_mult=0.1)
    net = MobileNetV3(settings, last_channel=64, num_classes=7)
    for module in net.modules():  # their statistics become those of the images
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    net.train()(images(64))
    return net, {"images": images(64), "labels": torch.tensor([1, 6])}, lambda net, b: net(b["images"]), cross_entropy


def vgg():
    """A sixteenth of the channels. torchvision's first linear layer takes 512 of them."""
    from torchvision.models.vgg import VGG, cfgs, make_layers
    net = VGG(make_layers([c if c == "M" else c // 16 for c in cfgs["D"]]), num_classes=7)
    for layer, (inputs, outputs) in {0: (32 * 49, 24), 3: (24, 24), 6: (24, 7)}.items():
        net.classifier[layer] = torch.nn.Linear(inputs, outputs)
    return net, {"images": images(64), "labels": torch.tensor([1, 6])}, lambda net, b: net(b["images"]), cross_entropy


@torch.no_grad()
def by_formula(net, gain, side):
    """`gain`: the mean weight of a norm."""
    for name, tensor in net.state_dict(keep_vars=True).items():
        drawn = pattern(tensor.shape, len(name))
        if name.endswith("running_var"):
            tensor.copy_(1 + 0.5 * drawn)
        elif tensor.dim() == 1:
            tensor.copy_((gain if name.endswith("weight") else 0) + 0.1 * drawn)
        elif tensor.dim() > 1:
            tensor.copy_((6 * len(tensor) / tensor.numel()) ** 0.5 * drawn)
    return net, {"images": images(side), "labels": torch.tensor([1, 999])}, lambda net, b: net(b["images"]), cross_entropy


def torchvision(name, gain):
    import torchvision
    return by_formula(torchvision.models.get_model(name), gain, 64)


def timm(name, gain, side):
    import timm
    return by_formula(timm.create_model(name), gain, side)


class TextTransformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 24)
        self.transformer = torch.nn.Transformer(24, 3, 2, 2, 40, batch_first=True)
        self.head = torch.nn.Linear(24, 3)
        angles = torch.arange(12)[:, None] / 10_000 ** (torch.arange(0, 24, 2) / 24)
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], 2).flatten(1))

    def forward(self, ids):
        x = self.embedding(ids) + self.positions[:ids.shape[1]]
        return self.head(self.transformer(x, x).mean(1))


def transformer():
    return TextTransformer(), {**batch_of_words(), "labels": torch.tensor([1, 2])}, lambda net, b: net(b["input_ids"]), cross_entropy


def residual_lstm():
    return ResidualLstmNet(50, 12, 20, 2, 3), {**batch_of_words(), "labels": torch.tensor([1, 2])}, lambda net, b: net(b["input_ids"]), cross_entropy


class Dlrm(torch.nn.Module):
    """As NVIDIA's: the vector of the numbers comes before the products of all pairs."""
    ROWS = (5, 7, 3)

    def __init__(self, width=8):
        super().__init__()
        from torch.nn import Linear, ReLU, Sequential
        self.bottom = Sequential(Linear(4, 10), ReLU(), Linear(10, width), ReLU())
        self.top = Sequential(Linear(width + 6, 12), ReLU(), Linear(12, 1))
        for k, rows in enumerate(self.ROWS):
            self.register_parameter(f"table{k}", torch.nn.Parameter(torch.randn(rows, width)))

    def forward(self, numbers, categories):
        numbers = self.bottom(numbers)
        rows = [getattr(self, f"table{k}")[ids] for k, ids in enumerate(categories[..., 0].unbind(1))]
        vectors = torch.stack([numbers, *rows], 1)
        below = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([numbers, (vectors @ vectors.transpose(1, 2))[:, below[0], below[1]]], 1))


def dlrm():
    categories = torch.stack([torch.arange(6) * 7 % rows for rows in Dlrm.ROWS], 1)[..., None]
    batch = {"dense": torch.randn(6, 4), "categories": categories, "labels": torch.tensor([0.0, 1, 1, 0, 0, 1])}
    return Dlrm(), batch, lambda net, b: net(b["dense"], b["categories"]), lambda y, b: F.binary_cross_entropy_with_logits(
        y[:, 0], b["labels"])


def gpt2_with_head():
    return gpt2("GPT2LMHeadModel")


def gpt2_without_head():
    return gpt2("GPT2Model")


ORIGINALS = {"gpt2": gpt2_with_head, "gpt2-body": gpt2_without_head, "bert": bert_pretraining, "bert-classifier": bert_classifier,
             "bert-body": bert_body, "vit-huggingface": vit_huggingface, "vit-timm": vit_timm, "vit-torchvision": vit_torchvision,
             "transformer": transformer, "residual_lstm": residual_lstm, "dlrm": dlrm, "mobilenet": mobilenet, "vgg": vgg}
OF_ONE_SIZE = {"resnet18": lambda: torchvision("resnet18", 0.5), "resnet50": lambda: torchvision("resnet50", 0.5),
               "mobilenet_v3_large": lambda: torchvision("mobilenet_v3_large", 0.8),
               "xception": lambda: timm("legacy_xception", 0.4, 64), "inception_v4": lambda: timm("inception_v4", 0.9, 107)}


def name_in_file(name, stored):
    """transformers' ViT has other names in memory."""
    for memory, file in ((".layers.", ".encoder.layer."), (".attention.q_proj.", ".attention.attention.query."),
                         (".attention.k_proj.", ".attention.attention.key."), (".attention.v_proj.", ".attention.attention.value."),
                         (".attention.o_proj.", ".attention.output.dense."), (".mlp.fc1.", ".intermediate.dense."),
                         (".mlp.fc2.", ".output.dense.")):
        if name not in stored:
            name = name.replace(memory, file)
    return name


def computed(net, batch, run, loss_of, stored=()):
    net.eval().double()
    has_batch_norm = any(isinstance(m, torch.nn.BatchNorm2d) for m in net.modules())  # then larger steps would not converge
    rate = 2 ** -9 if has_batch_norm else 0.125
    batch = {k: t.double() if t.is_floating_point() else t for k, t in batch.items()}
    losses = []
    for step in range(5):
        net.zero_grad()
        y = run(net, batch)
        loss = loss_of(y, batch)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            logits = (y[0] if isinstance(y, tuple) else y).detach().flatten()
            gradients = {name_in_file(n, stored): p.grad for n, p in net.named_parameters()}
            norms = {n: g.norm().item() for n, g in gradients.items()}
            products = {n: (g * pattern(g.shape, 7)).sum().item() for n, g in gradients.items()}
        with torch.no_grad():
            for p in net.parameters():
                p -= rate * p.grad
    return {"rate": rate, "logits": logits[:: max(1, len(logits) // 40)].tolist(), "losses": losses, "norms": norms,
            "products": products}


def main():
    torch.set_num_threads(1)
    results = {}
    for name, make in ORIGINALS.items():
        torch.manual_seed(1)
        net, batch, run, loss = make()
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        if hasattr(net, "save_pretrained"):
            net.save_pretrained(folder)
            (folder / "generation_config.json").unlink(missing_ok=True)
        else:
            save_file(net.state_dict(), folder / "model.safetensors")
        stored = set(__import__("safetensors").safe_open(folder / "model.safetensors", "pt").keys())
        save_file({k: t.contiguous() for k, t in batch.items()}, folder / "batch.safetensors")
        results[name] = computed(net, batch, run, loss, stored)
    for name, make in OF_ONE_SIZE.items():
        net, batch, *rest = make()
        results[name] = {"side": batch["images"].shape[2], **computed(net, batch, *rest)}
    (FOLDER / "results.json").write_text(json.dumps({"networks": results}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
