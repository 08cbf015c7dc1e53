"""The originals of Tandem's large networks, each with a batch: what parity.py and vs_pytorch.py compare with.

Need torch, and torchvision, timm, or transformers.
"""
import re

import torch
from safetensors.torch import save_file
from torch.nn import functional as F


def images(side, samples):
    return {"images": torch.randn(samples, 3, side, side), "labels": torch.randint(1000, (samples,))}


def vision(name, side, samples):
    import torchvision
    net = torchvision.models.get_model(name)
    return Original("torchvision", "imagenet", net, images(side, samples), lambda n, b: n(b["images"]))


def timm(name, side, samples):
    import timm
    return Original("timm", "imagenet", timm.create_model(name), images(side, samples), lambda n, b: n(b["images"]))


def ids(words, samples, length):
    return {"input_ids": torch.randint(words, (samples, length))}


def gpt2(samples):
    import transformers
    batch = ids(50257, samples, 128)
    batch["labels"] = batch["input_ids"].clone()
    return Original("huggingface", "text", transformers.GPT2LMHeadModel(transformers.GPT2Config()), batch,
                    lambda n, b: n(input_ids=b["input_ids"]).logits,
                    lambda y, b: F.cross_entropy(y[:, :-1].flatten(0, 1), b["labels"][:, 1:].flatten()))


BERT_KEYS = ("input_ids", "attention_mask", "token_type_ids")


def texts_of_bert(samples):
    batch = ids(30522, samples, 128)
    batch["attention_mask"] = torch.ones(samples, 128, dtype=torch.int64)
    batch["attention_mask"][1, 100:] = 0
    batch["token_type_ids"] = (torch.arange(128) >= 60).long().expand(samples, 128).contiguous()
    return batch


def bert(samples):
    import transformers
    batch = texts_of_bert(samples)
    batch["labels"] = torch.where(torch.rand(samples, 128) < 0.15, batch["input_ids"], -100)
    batch["next_sentence_label"] = torch.arange(samples) % 2
    net = transformers.BertForPreTraining(transformers.BertConfig())

    def loss(y, b):
        return F.cross_entropy(y[0].flatten(0, 1), b["labels"].flatten()) + F.cross_entropy(y[1], b["next_sentence_label"])

    def run(n, b):
        out = n(**{k: b[k] for k in BERT_KEYS})
        return out.prediction_logits, out.seq_relationship_logits
    return Original("huggingface", "text", net, batch, run, loss)


def bert_classifier(samples):
    import transformers
    batch = {**texts_of_bert(samples), "labels": torch.arange(samples) % 2}
    net = transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=2))
    return Original("huggingface", "text", net, batch, lambda n, b: n(**{k: b[k] for k in BERT_KEYS}).logits)


def vit_huggingface(samples):
    import transformers
    net = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))
    return Original("huggingface", "imagenet", net, images(224, samples), lambda n, b: n(b["images"]).logits)


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


def transformer(samples):
    batch = {**ids(20_000, samples, 20), "labels": torch.randint(2, (samples,))}
    return Original("torch", "text", TextTransformer(), batch, lambda n, b: n(b["input_ids"]))


def vit_60m(samples):
    from torchvision.models import VisionTransformer
    net = VisionTransformer(image_size=224, patch_size=16, num_layers=12, num_heads=10, hidden_dim=640, mlp_dim=2560)
    return Original("torchvision", "imagenet", net, images(224, samples), lambda n, b: n(b["images"]))


class ResidualLstm(torch.nn.Module):
    """A layer of Kim, El-Khamy & Lee (2017)."""

    def __init__(self, features, cells):
        super().__init__()

        def drawn(*shape):
            return torch.nn.Parameter((2 * torch.rand(*shape) - 1) * cells ** -0.5)
        self.cells = cells
        self.weight_ih, self.weight_hh = drawn(3 * cells + features, features), drawn(3 * cells + features, features)
        self.bias, self.peepholes = drawn(3 * cells + features), drawn(2, cells)
        self.weight_co, self.weight_hr = drawn(features, cells), drawn(features, cells)

    def forward(self, x):
        inputs = F.linear(x, self.weight_ih, self.bias)
        h, c, outputs = x.new_zeros(len(x), x.shape[2]), x.new_zeros(len(x), self.cells), []
        for t in range(x.shape[1]):
            i, f, g, o = (inputs[:, t] + F.linear(h, self.weight_hh)).split([self.cells] * 3 + [x.shape[2]], 1)
            i, f = torch.sigmoid(i + self.peepholes[0] * c), torch.sigmoid(f + self.peepholes[1] * c)
            c = f * c + i * torch.tanh(g)
            h = torch.sigmoid(o + F.linear(c, self.weight_co)) * (F.linear(torch.tanh(c), self.weight_hr) + x[:, t])
            outputs.append(h)
        return torch.stack(outputs, 1)


class ResidualLstmNet(torch.nn.Module):
    def __init__(self, words=20_000, width=512, cells=1024, layers=8, classes=2):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)
        self.layers = torch.nn.ModuleList(ResidualLstm(width, cells) for _ in range(layers))
        self.head = torch.nn.Linear(width, classes)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def residual_lstm(samples):
    batch = {**ids(20_000, samples, 20), "labels": torch.randint(2, (samples,))}
    return Original("", "text", ResidualLstmNet(), batch, lambda n, b: n(b["input_ids"]))


CRITEO = (1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652, 2173, 4,
          7046547, 18, 15, 286181, 105, 142572)


class Dlrm(torch.nn.Module):
    """With NVIDIA's sizes. `sparse`: tables have sparse gradients."""

    def __init__(self, rows=tuple(min(r, 30_000) for r in CRITEO), numbers=13, width=128, bottom=(512, 256), top=(1024, 1024, 512, 256),
                 sparse=True):
        super().__init__()
        from torch.nn import Linear, ReLU, Sequential

        def layers(*sizes):
            return [layer for pair in zip(sizes, sizes[1:]) for layer in (Linear(*pair), ReLU())]
        vectors = len(rows) + 1
        self.bottom = Sequential(*layers(numbers, *bottom, width))
        self.top = Sequential(*layers(width + vectors * (vectors - 1) // 2, *top), Linear(top[-1], 1))
        self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(r, width, mode="sum", sparse=sparse) for r in rows)
        self.register_buffer("below", torch.tril_indices(vectors, vectors, -1), persistent=False)
        for linear in (m for m in self.modules() if isinstance(m, Linear)):  # as create_mlp of facebookresearch/dlrm draws it
            out, into = linear.weight.shape
            torch.nn.init.normal_(linear.weight, std=(2 / (out + into)) ** 0.5)
            torch.nn.init.normal_(linear.bias, std=out ** -0.5)
        for table in self.tables:  # as create_emb does
            torch.nn.init.uniform_(table.weight, -table.num_embeddings ** -0.5, table.num_embeddings ** -0.5)

    def forward(self, numbers, categories):
        numbers = self.bottom(numbers)
        vectors = torch.stack([numbers, *(t(ids) for t, ids in zip(self.tables, categories.unbind(1)))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.below[0], self.below[1]]
        return self.top(torch.cat([numbers, products], 1))


def dlrm(samples):
    categories = torch.stack([torch.randint(min(r, 30_000), (samples, 1)) for r in CRITEO], 1)
    batch = {"dense": torch.rand(samples, 13), "categories": categories, "labels": torch.randint(2, (samples,)).float()}
    return Original("", "clicks", Dlrm(), batch, lambda n, b: n(b["dense"], b["categories"]),
                    lambda y, b: F.binary_cross_entropy_with_logits(y[:, 0], b["labels"]),
                    lambda key: re.sub(r"^tables\.(\d+)\.weight$", r"table\1", key))


class Original:
    """`stored` gives a parameter's name in files."""

    def __init__(self, names, purpose, net, batch, run, loss=lambda y, b: F.cross_entropy(y, b["labels"]), stored=lambda key: key):
        self.names, self.purpose, self.net, self.batch, self.run, self.loss, self.stored = names, purpose, net, batch, run, loss, stored

    def save(self, folder):
        """With its own function; the weights of torchvision and timm are state_dicts."""
        if self.names == "huggingface":
            self.net.save_pretrained(folder)
            return folder
        save_file({self.stored(k): t for k, t in self.net.state_dict().items()}, folder / "model.safetensors")
        return folder / "model.safetensors"


NETWORKS = {
    "vgg16": lambda n: vision("vgg16", 224, n),
    "resnet18": lambda n: vision("resnet18", 224, n),
    "resnet50": lambda n: vision("resnet50", 224, n),
    "resnet101": lambda n: vision("resnet101", 224, n),
    "resnet152": lambda n: vision("resnet152", 224, n),
    "mobilenet_v3_large": lambda n: vision("mobilenet_v3_large", 224, n),
    "xception": lambda n: timm("legacy_xception", 299, n),
    "inception_v4": lambda n: timm("inception_v4", 299, n),
    "vit_b_16": lambda n: vision("vit_b_16", 224, n),
    "vit_b_16 timm": lambda n: timm("vit_base_patch16_224", 224, n),
    "vit_b_16 huggingface": vit_huggingface,
    "gpt2": gpt2,
    "bert_base": bert,
    "bert_base classifier": bert_classifier,
    "transformer": transformer,
    "vit_60m": vit_60m,
    "residual_lstm": residual_lstm,
    "dlrm": dlrm,
}
