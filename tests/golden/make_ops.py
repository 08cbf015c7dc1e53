#!/usr/bin/env python3
"""Writes ops.json beside itself: what PyTorch computes by op, forward and backward, in double precision.

Needs torch, which the tests do not: they read the file (tests/golden/golden_ops_test.cpp, which has the same ops by the same
names). Layouts are Tandem's: images (N,H,W,C), convolution weights (O,H,W,I). Inputs hold the kinks of what has some.
"""
import json
import pathlib

import torch
import torch.nn.functional as F

KINKS = [-4.0, -3.0, -1.5, -1.0, -0.0, 0.0, 0.25, 1.0, 2.0, 3.0, 4.0]


def randn(*shape):
    return (64 * torch.randn(shape)).round() / 64  # few digits


def chw(x):
    return x.permute(0, 3, 1, 2)  # also of weights


def hwc(x):
    return x.permute(0, 2, 3, 1)


def pixelwise(f):
    return lambda x: hwc(f(chw(x)))


DTYPES = {torch.int32: "i32", torch.float32: "f32", torch.float64: "f64"}


def values(t):
    result = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "values": t.flatten().tolist()}
    return {**result, "fixed": True} if is_fixed(t) else result


def fixed(t):
    """An input that is not differentiated."""
    t.fixed = True
    return t


def is_fixed(t):
    return getattr(t, "fixed", False)


def case(name, function, *inputs):
    leaves = [t.clone().requires_grad_(t.is_floating_point() and not is_fixed(t)) for t in inputs]
    outputs = function(*leaves)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    cotangents = [randn(*t.shape) if t.dtype == torch.float64 else None for t in outputs]
    pairs = [(t, g) for t, g in zip(outputs, cotangents) if g is not None and t.requires_grad]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return {"name": name, "inputs": [values(t) for t in inputs],
            "outputs": [values(t.detach() if t.is_floating_point() else t.int()) for t in outputs],
            "cotangents": [values(g) if g is not None else None for g in cotangents],
            "grads": [values(t.grad) if t.grad is not None else None for t in leaves]}


def ints(shape, high):
    return torch.randint(high, shape, dtype=torch.int32)


def pointwise_cases():
    x = torch.cat([torch.tensor(KINKS), 3 * randn(10)])
    bases = torch.tensor([0.0, 0.0, 1.0, 2.0, 2.0, 3.0, 0.5, 2.5])
    exponents = torch.tensor([0.0, 2.0, 0.0, 2.0, 3.0, -1.5, 0.5, 1.7])
    yield case("pow", torch.pow, bases, exponents)
    for e in (0, 1, 2, 3, 4, -1):
        yield case(f"pow {e}", lambda t, e=e: t ** e, x if e >= 0 else x.abs() + 1)
    for e in (0.5, -0.5, 1.7):
        yield case(f"pow {e}", lambda t, e=e: t ** e, x.abs() + 0.1)
    for name, f in {"softplus": F.softplus, "silu": F.silu, "elu 1.5": lambda t: F.elu(t, 1.5), "selu": F.selu,
                    "hard_sigmoid": lambda t: F.relu6(t + 3) / 6,  # hardsigmoid's own derivative has 1/6 in float only
                    "hard_swish": F.hardswish,
                    "clamp": lambda t: t.clamp(-1, 2), "maximum 0.25": lambda t: t.clamp(min=0.25),
                    "minimum 0.25": lambda t: t.clamp(max=0.25)}.items():
        yield case(name, f, x)
    a, b, positive = randn(3, 4), randn(4), randn(3, 4).abs() + 0.25
    for name, f in {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum,
                    "minimum": torch.minimum}.items():  # of equal operands PyTorch's gradient is halved
        yield case(name, f, a, b + 1 / 128)
    yield case("div", torch.div, a, b.sign() * (b.abs() + 0.5))
    for name in ("relu", "abs", "neg", "exp", "tanh", "sigmoid", "erf"):
        yield case(name, getattr(torch, name), x)
    yield case("gelu", F.gelu, x)
    for name in ("log", "sqrt", "rsqrt"):
        yield case(name, getattr(torch, name), positive)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield case(name, lambda s, t, name=name: getattr(torch, name)(s, t).double(), x, x.roll(3).where(x > 0, x))
    yield case("where", lambda s, t, c: torch.where(c != 0, s, t), a, b, ints((3, 1), 2))
    yield case("cast", lambda t: t.float().double(), x + 1e-9)
    yield case("floor", lambda t: t.detach().floor(), x)


def reduce_cases():
    x = randn(3, 4, 5)
    yield case("sum", lambda t: t.sum((0, 2)), x)
    yield case("mean", lambda t: t.mean(1, keepdim=True), x)
    yield case("max", lambda t: t.max(1).values, x)
    yield case("min", lambda t: t.min(1).values, x)
    yield case("argmax", lambda t: t.argmax(1), x)
    yield case("argmin", lambda t: t.argmin(0), x)
    yield case("variance", lambda t: t.var((0, 2)), x)
    yield case("variance biased", lambda t: t.var((0, 2), unbiased=False, keepdim=True), x)
    x[1] = 0
    yield case("l2_norm", lambda t: t.norm(dim=2), x)


def loss_cases():
    logits, labels = 3 * randn(5, 4), ints((5,), 4)
    yield case("softmax", lambda t: t.softmax(-1), logits)
    yield case("log_softmax", lambda t: t.log_softmax(-1), logits)
    yield case("cross_entropy", lambda t, i: F.cross_entropy(t, i.long()), logits, labels)
    yield case("cross_entropy 0.1", lambda t, i: F.cross_entropy(t, i.long(), label_smoothing=0.1), logits, labels)
    x = torch.cat([torch.tensor([0.0, 200.0, -200.0, 30.0]), randn(4)])
    yield case("bce_with_logits", F.binary_cross_entropy_with_logits, x, torch.tensor([0.0, 1, 0.0, 0.0, 1, 0.3, 0.8, 0.5]))
    a, b = torch.tensor([0.0, 1.0, 0.5, -2.0, 0.1, 3.0]), torch.tensor([0.0, 0.5, 1.0, 1.0, 0.2, -0.7])
    yield case("mse_loss", F.mse_loss, a, b)
    yield case("l1_loss", F.l1_loss, a, b)
    yield case("smooth_l1_loss 0.5", lambda s, t: F.smooth_l1_loss(s, t, beta=0.5), a, b)


def norm_cases():
    x, weight, bias = randn(2, 2, 3, 6) + 1, randn(6), randn(6)
    yield case("batch_norm", lambda t, w, b: [hwc(F.batch_norm(chw(t), None, None, w, b, True, eps=1e-3)),
                                              t.mean((0, 1, 2)), t.var((0, 1, 2), unbiased=False)], x, weight, bias)
    yield case("batch_norm_inference", lambda t, w, b, m, v: hwc(F.batch_norm(chw(t), m, v, w, b, eps=1e-3)),
               x, weight, bias, fixed(randn(6)), fixed(randn(6).abs() + 0.5))
    yield case("layer_norm", lambda t, w, b: F.layer_norm(t, (6,), w, b, 1e-3), x, weight, bias)
    yield case("rms_norm", lambda t, w: F.rms_norm(t, (6,), w, 1e-3), x, weight)
    for groups in (1, 2, 6):
        yield case(f"group_norm {groups}", lambda t, w, b, g=groups: hwc(F.group_norm(chw(t), g, w, b, 1e-3)), x, weight,
                   bias)


def shape_cases():
    x, y = randn(3, 5), randn(3, 5)
    yield case("reshape", lambda t: t.reshape(5, 3), x)
    yield case("transpose", lambda t: t.permute(2, 0, 1), randn(2, 3, 4))
    yield case("concat", lambda s, t: torch.cat([s, t], 1), x, y)
    yield case("slice", lambda t: t[:, 1:4], x)
    for name, part in {"1:8:3": slice(1, 8, 3), "::2": slice(None, None, 2), "0:1:5": slice(0, 1, 5),
                       "2:9:4": slice(2, 9, 4)}.items():
        yield case(f"slice {name}", lambda t, part=part: t[:, part], randn(2, 9, 3))
    yield case("slice axes", lambda t: t[1:4:2, ::3, 2:], randn(5, 7, 3))
    yield case("pad", lambda t: F.pad(t, (1, 2)), x)
    yield case("broadcast_to", lambda t: t.broadcast_to(2, 3, 5), randn(3, 1))
    yield case("split", lambda t: t.split([1, 4], 1), x)
    yield case("stack", lambda s, t: torch.stack([s, t], 1), x, y)
    yield case("flip", lambda t: t.flip(0, 1), x)
    index = ints((3, 7), 5)
    yield case("gather", lambda t, i: t.gather(1, i.long()), x, index)
    yield case("scatter_add", lambda t, i, s: t.scatter_add(1, i.long(), s), x, index, randn(3, 7))
    yield case("embedding", lambda t, i: F.embedding(i.long(), t), x, ints((2, 4), 3))
    yield case("one_hot", lambda i: F.one_hot(i.long(), 6).double(), ints((2, 4), 6))


def image_cases():
    x = randn(1, 7, 5, 4)
    yield case("adaptive_avg_pool2d", pixelwise(lambda t: F.adaptive_avg_pool2d(t, (3, 2))), x)
    yield case("adaptive_max_pool2d", pixelwise(lambda t: F.adaptive_max_pool2d(t, (3, 2))), x)
    yield case("global_max_pool2d", lambda t: F.adaptive_max_pool2d(chw(t), 1).flatten(1), x)
    yield case("conv_transpose2d", lambda t, w, b: hwc(F.conv_transpose2d(
        chw(t), chw(w), b, stride=(3, 2), padding=(1, 2), output_padding=(2, 0), dilation=(1, 2), groups=2)),
        randn(1, 3, 4, 4), randn(4, 2, 3, 3), randn(6))
    yield case("depthwise", lambda t, w: hwc(F.conv2d(chw(t), chw(w), stride=2, padding=1, groups=4)),
               x, randn(8, 3, 2, 1))


def pool_cases():
    x = randn(1, 7, 5, 3)
    x[:, :4] = x[:, :4].round()  # equal pixels
    yield case("max_pool2d", pixelwise(lambda t: F.max_pool2d(t, 2)), x)
    yield case("max_pool2d overlapping", pixelwise(lambda t: F.max_pool2d(t, (3, 2), (2, 1), (1, 0))), x)
    yield case("avg_pool2d", pixelwise(lambda t: F.avg_pool2d(t, 2)), x)
    yield case("avg_pool2d padded", pixelwise(lambda t: F.avg_pool2d(t, 3, 2, 1)), x)
    yield case("avg_pool2d covered", pixelwise(lambda t: F.avg_pool2d(t, 3, 2, 1, count_include_pad=False)), x)
    yield case("global_avg_pool2d", lambda t: t.mean((1, 2)), x)

    def gradient(t, g):
        t = chw(t).requires_grad_()
        return hwc(torch.autograd.grad(F.max_pool2d(t, 2), t, chw(g), create_graph=True)[0])
    yield case("max_pool2d gradient", gradient, fixed(x.clone()), randn(1, 3, 2, 3))


def product_cases():
    for a in (False, True):
        for b in (False, True):
            left, right = randn(2, 3, 2), randn(2, 2, 4)
            yield case(f"matmul {int(a)}{int(b)}",
                       lambda s, t, a=a, b=b: (s.mT if a else s) @ (t.mT if b else t),
                       left.mT.contiguous() if a else left, right.mT.contiguous() if b else right)
    yield case("linear", F.linear, randn(3, 4), randn(5, 4), randn(5))

    def conv(**options):
        return lambda t, w, *b: hwc(F.conv2d(chw(t), chw(w), *b, **options))
    x = randn(1, 6, 4, 4)
    yield case("conv2d", conv(), x, randn(3, 3, 3, 4), randn(3))
    yield case("conv2d pixels", conv(), x, randn(3, 1, 1, 4))
    yield case("conv2d strided", conv(stride=(2, 1), padding=(1, 2)), x, randn(3, 3, 3, 4), randn(3))
    yield case("conv2d dilated", conv(padding=2, dilation=(2, 1)), x, randn(3, 3, 2, 4), randn(3))
    yield case("conv2d groups", conv(groups=2, padding=1), x, randn(6, 3, 3, 2), randn(6))
    yield case("conv_transpose2d plain", lambda t, w: hwc(F.conv_transpose2d(chw(t), chw(w))), x, randn(4, 2, 3, 3))


def stepped(optimizer, state, lr, w, g, **options):
    """The parameter and its state after a step from `state`."""
    p = torch.nn.Parameter(w.clone())
    p.grad = g.clone()
    rule = getattr(torch.optim, optimizer)([p], lr=lr.item(), **options)
    rule.state[p].update({k: v.clone() for k, v in state.items()})
    rule.step()
    return [p.detach(), *(rule.state[p][k] for k in state)]


def update_cases():
    w, v, g, squares, lr = (fixed(t) for t in (randn(7), randn(7), randn(7), randn(7).abs(), torch.tensor(0.125)))

    def momentum(**options):
        return lambda w, v, g, lr: stepped("SGD", {"momentum_buffer": v}, lr, w, g, weight_decay=0.25, **options)
    yield case("sgd", lambda w, g, lr: stepped("SGD", {}, lr, w, g, weight_decay=0.25), w, g, lr)
    yield case("sgd momentum", momentum(momentum=0.75), w, v, g, lr)
    yield case("sgd nesterov", momentum(momentum=0.75, nesterov=True), w, v, g, lr)
    for name in ("Adam", "AdamW"):
        yield case(name.lower(), lambda w, m, s, g, t, lr, name=name: stepped(
            name, {"exp_avg": m, "exp_avg_sq": s, "step": t}, lr, w, g, betas=(0.75, 0.875), eps=1e-3,
            weight_decay=0.25), w, v, squares, g, fixed(torch.tensor(4.0, dtype=torch.float32)), lr)
    yield case("predict", lambda w, v, c: w - c * v, w, v, lr)


def option_cases():
    logits, labels, weights = 3 * randn(5, 4), torch.tensor([0, 3, 1, 1, 2], dtype=torch.int32), randn(4).abs() + 0.25
    for name, options in {"": {}, " ignoring": {"ignore_index": 1}}.items():
        yield case(f"cross_entropy weighted{name}", lambda t, i, w, options=options: F.cross_entropy(
            t, i.long(), w.detach(), **options), logits, labels, fixed(weights.clone()))
        yield case(f"cross_entropy weighted 0.1{name}", lambda t, i, w, options=options: F.cross_entropy(
            t, i.long(), w.detach(), label_smoothing=0.1, **options), logits, labels, fixed(weights.clone()))
    yield case("cross_entropy ignoring", lambda t, i: F.cross_entropy(t, i.long(), ignore_index=1), logits, labels)
    yield case("cross_entropy pixels", lambda t, i: F.cross_entropy(chw(t), i.long(), label_smoothing=0.1),
               randn(2, 3, 2, 4), ints((2, 3, 2), 4))
    x = randn(2, 4, 3, 2)
    for size in ((8, 6), (3, 5), (1, 2)):
        yield case(f"interpolate nearest {size[0]}x{size[1]}",
                   pixelwise(lambda t, size=size: F.interpolate(t, size, mode="nearest")), x)
        for corners in (False, True):
            yield case(f"interpolate bilinear{' corners' if corners else ''} {size[0]}x{size[1]}", pixelwise(
                lambda t, size=size, corners=corners: F.interpolate(t, size, mode="bilinear", align_corners=corners)), x)
    for diagonal in (-1, 0, 1):
        yield case(f"tril {diagonal}", lambda t, d=diagonal: t.tril(d), randn(2, 3, 4))
        yield case(f"triu {diagonal}", lambda t, d=diagonal: t.triu(d), randn(2, 3, 4))
    yield case("arange", lambda: torch.arange(-1.0, 2.0, 0.75))
    yield case("index", lambda t: [t[0], t[-1, 1:3], t[:, 0, ::2], t[1, -1, -2]], randn(2, 3, 4))
    yield case("matmul rows", torch.matmul, randn(2, 3, 4), randn(4, 2))
    yield case("matmul batches", torch.matmul, randn(3, 4), randn(2, 4, 2))
    yield case("matmul broadcast", torch.matmul, randn(2, 1, 3, 4), randn(3, 4, 2))


def attention_cases():
    def heads_of(t, heads):
        return t.unflatten(2, (heads, -1)).transpose(1, 2)

    def attend(heads, causal=False):
        def f(q, k, v, mask=None):
            seen = None if mask is None else (mask != 0)[:, None, None, :]
            y = F.scaled_dot_product_attention(heads_of(q, heads), heads_of(k, heads), heads_of(v, heads), seen,
                                               is_causal=causal)
            return y.transpose(1, 2).flatten(2)
        return f
    q, k, v = randn(2, 5, 6), randn(2, 4, 6), randn(2, 4, 6)
    yield case("attention", attend(2), q, k, v)
    yield case("attention causal", attend(3, causal=True), q, k, v)
    mask = torch.tensor([[1, 1, 0, 1], [0, 1, 0, 0]], dtype=torch.int32)
    yield case("attention masked", attend(2), q, k, v, mask)
    yield case("attention packed", lambda t: attend(2, causal=True)(*t.chunk(3, 2)), randn(2, 5, 18))
    yield case("gelu_tanh", lambda t: F.gelu(t, approximate="tanh"), 3 * randn(9))


def bag_cases():
    def bags(mode):
        def f(first, second, ids):  # PyTorch leaves out a row of zeros, not an id of -1
            bag = [F.embedding_bag(torch.where(i < 0, len(t), i).long(), torch.cat([t, t[:1] * 0]), mode=mode,
                                   padding_idx=len(t)) for t, i in zip((first, second), ids.unbind(1))]
            return torch.stack(bag, 1)
        return f
    ids = ints((5, 2, 3), 4) - 1
    ids[2, 1] = -1  # no row
    for mode in ("sum", "mean"):
        yield case(f"embedding_bag {mode}", bags(mode), randn(3, 4), randn(6, 4), ids)


def lstm_cases():
    def run(x, lengths, reverse, *weights):
        """One direction of torch.nn.LSTM: the reverse one is the second of two."""
        names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"] + ["weight_hr"] * (len(weights) > 4)
        net = torch.nn.LSTM(x.shape[2], weights[0].shape[0] // 4, batch_first=True, bidirectional=reverse,
                            proj_size=weights[4].shape[0] if len(weights) > 4 else 0)
        parameters = {f"{name}_l0{end}": w for name, w in zip(names, weights)
                      for end in ([""] + ["_reverse"] * reverse)}
        if lengths is not None:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y = torch.func.functional_call(net, parameters, (x,))[0]
        if lengths is not None:
            y = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0]
        return y.chunk(2, 2)[1] if reverse else y

    for reverse in (False, True):
        kind = " reverse" if reverse else ""
        x, gates = randn(3, 4, 5), (randn(24, 5), randn(24, 6), randn(24), randn(24))
        yield case("lstm" + kind, lambda x, *w, r=reverse: run(x, None, r, *w), x, *gates)
        narrow = (randn(24, 5), randn(24, 2), randn(24), randn(24), randn(2, 6))
        yield case("lstm projected" + kind, lambda x, *w, r=reverse: run(x, None, r, *w), x, *narrow)
        lengths = torch.tensor([2, 4, 1], dtype=torch.int32)
        yield case("lstm lengths" + kind, lambda x, n, *w, r=reverse: run(x, n.long(), r, *w), x, lengths, *narrow)


def main():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    families = (pointwise_cases, reduce_cases, loss_cases, norm_cases, shape_cases, image_cases,
                pool_cases, product_cases, update_cases, option_cases, attention_cases, bag_cases,
                lstm_cases)
    cases = [c for family in families for c in family()]
    document = {"torch": torch.__version__.split("+")[0], "cases": cases}
    pathlib.Path(__file__).with_name("ops.json").write_text(json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
