#!/usr/bin/env python3
"""Writes constructs.json beside itself: what PyTorch computes of losses that are written in many ways, in double precision.

Needs torch, which the tests do not: tests/train/constructs_test.cpp has the same constructs by the same names. The file has the
loss of each, and the parameters and buffers after one step of SGD. Weights, buffers, and data come from formulas that both
sides compute (`fill`, `batch`).
"""
import json
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import grad

RATE, SAMPLES, FEATURES = 0.5, 8, 3
MARGIN = 0.01  # no value is nearer to a step of floor or argmin, where rounding could decide
CONSTRUCTS = {}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.head = nn.Linear(FEATURES, 4), nn.Linear(4, FEATURES)
        self.norm = nn.BatchNorm1d(FEATURES)
        self.weight = nn.Parameter(torch.empty(()))
        self.register_buffer("kept", torch.empty(()))

    def forward(self, x):
        return self.head(torch.tanh(self.hidden(x)))


def state(net):
    return {name: value for name, value in sorted(net.state_dict().items()) if "num_batches" not in name}


def fill(net):
    """State k by name, element j: 0.8·sin(2.3·(k + 1) + 1.3·j). Buffers are 1.5 larger: a variance is positive."""
    buffers = dict(net.named_buffers())
    for k, (name, value) in enumerate(state(net).items()):
        wave = 0.8 * torch.sin(2.3 * (k + 1) + 1.3 * torch.arange(value.numel(), dtype=torch.float64))
        value.copy_((wave + 1.5 if name in buffers else wave).reshape(value.shape))
    return net


def batch():
    """Element i: ((17·i + 7) mod 23)/23 − 0.4."""
    return ((torch.arange(SAMPLES * FEATURES) * 17 + 7) % 23 / 23.0 - 0.4).reshape(SAMPLES, FEATURES)


def construct(loss):
    CONSTRUCTS[loss.__name__] = loss
    return loss


def leaf(x):
    return x.clone().requires_grad_()


def whole(x):
    """⌊x⌋, of values that are not near a whole number."""
    assert (x - x.round()).abs().min() > MARGIN
    return x.floor()


@construct
def plain(net, x):
    return F.mse_loss(net(x), x)


@construct
def no_grad_value(net, x):
    with torch.no_grad():
        target = 5 * net.weight * x.mean()
    return target + net.weight * x.mean()


@construct
def no_grad_network(net, x):
    with torch.no_grad():
        target = net(x).tanh()
    return F.mse_loss(net(x), target / 2)


@construct
def no_grad_view(net, x):
    y = net(x).flatten()
    with torch.no_grad():
        target = 2 * y
    return F.mse_loss(y, target)


@construct
def no_grad_unused(net, x):
    with torch.no_grad():
        net(x)
    return net(x).mean()


@construct
def detach(net, x):
    y = net(x)
    return (y * y.detach()).mean()


@construct
def detach_parameter(net, x):
    return (net(x) * net.weight.detach()).mean() * net.weight


@construct
def detach_twice(net, x):
    return F.mse_loss(net(net(x).detach().detach()), x)


@construct
def detach_input(net, x):
    return F.mse_loss(net(x.detach()), x)


class Quarters(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return whole(4 * h) / 4

    @staticmethod
    def backward(ctx, g):
        return g


@construct
def straight_through(net, x):
    return F.mse_loss(net.head(Quarters.apply(net.hidden(x))), x)


@construct
def policy_gradient(net, x):
    logits = net(x)
    with torch.no_grad():
        reward = logits.softmax(1) - 0.3
    return -(F.log_softmax(logits, 1) * reward).mean()


@construct
def assign_then_read(net, x):
    y = net.weight * x.mean()
    with torch.no_grad():
        net.kept.copy_(y)
    return 3 * net.kept + y


@construct
def assign_moving_average(net, x):
    with torch.no_grad():
        net.kept.lerp_(net(x).mean(), 0.1)
    return (net.kept * net(x)).mean()


@construct
def assign_without_gradient(net, x):
    y = net(x).mean()
    with torch.no_grad():
        net.kept.mul_(y)
    return net.kept * y


@construct
def gradient_penalty(net, x):
    x = leaf(x)
    y = net(x)
    slope = grad(y.sum(), x, create_graph=True)[0]
    return y.mean() + 10 * ((slope.pow(2).sum(1) + 1e-12).sqrt() - 1).pow(2).mean()


@construct
def gradient_of_a_parameter(net, x):
    loss = F.mse_loss(net.weight * net(x), x)
    return loss + grad(loss, net.weight, create_graph=True)[0] ** 2


@construct
def gradient_without_gradient(net, x):
    loss = F.mse_loss(net.weight * net(x), x)
    return loss + grad(loss, net.weight, retain_graph=True)[0] * net.weight


@construct
def third_derivative(net, x):
    x = leaf(x)
    slope = grad(torch.tanh(net.weight * x).sum(), x, create_graph=True)[0]
    return grad(slope.sum(), x, create_graph=True)[0].sum()  # the step takes the third


@construct
def called_twice(net, x):
    return F.mse_loss(net(x), net(x / 2))


@construct
def batch_norm(net, x):
    return (x * net.norm(net(x))).mean()


@construct
def batch_norm_called_twice(net, x):
    first = net.norm(net(x))
    second = net.norm(x)
    return (first * second).mean()


@construct
def batch_norm_of_a_siamese_network(net, x):
    left = net.norm(net.hidden(x)[:, :3]).tanh()
    right = net.norm(net.hidden(x.flip(0))[:, :3]).tanh()
    return F.mse_loss(left, right)


@construct
def batch_norm_in_evaluation(net, x):
    trained = net.norm(net(x))
    net.eval()
    return F.mse_loss(trained, net.norm(x))


@construct
def vector_quantized(net, x):
    z, codes = net.hidden(x)[:, :3], net.head.weight.reshape(4, 3)
    distances, nearest = torch.cdist(z, codes).sort(1)
    assert (distances[:, 1] - distances[:, 0]).min() > MARGIN
    q = F.embedding(nearest[:, 0], codes)
    return F.mse_loss(z + (q - z).detach(), x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())


@construct
def mean_teacher(net, x):
    with torch.no_grad():
        target = net.kept * net(x)
        net.kept.lerp_(net.weight, 0.01)
    return F.mse_loss(net(x), target)


@construct
def frozen_part(net, x):
    net.hidden.requires_grad_(False)
    return F.mse_loss(net(x), x)


@construct
def frozen_by_detach(net, x):
    frozen = {f"hidden.{name}": p.detach() for name, p in net.hidden.named_parameters()}
    return F.mse_loss(torch.func.functional_call(net, frozen, x), x)


@construct
def weights_used_twice(net, x):
    through_hidden = net.hidden(x) @ net.hidden.weight
    through_head = net(x) @ net.head.weight
    return F.mse_loss(through_hidden + through_head[:, :3], x)


@construct
def views(net, x):
    y = net(x)
    return (y[:, 0] * y[:, 1]).mean() + y[::2, 2].mean()


@construct
def indices(net, x):
    return 2 * net.hidden.weight[[2, 0, 1, 1]].mean() + net(x)[:, 1].mean()


@construct
def cross_entropy_that_ignores(net, x):
    labels = whole(2 * x[:, 0]).long() + 1
    assert set(labels.tolist()) == {0, 1, 2}
    return F.cross_entropy(net(x), labels, torch.tensor([1.0, 2, 3]), ignore_index=0, label_smoothing=0.1)


@construct
def two_networks(net, x):
    def judged(y, target):
        return F.binary_cross_entropy_with_logits(net(y), torch.full_like(x, target))

    return judged(x, 1.0) + judged(net.hidden(x)[:, :3].detach(), 0.0)


@construct
def double_backward_of_a_norm(net, x):
    given, x = x, leaf(x)
    y = net(x)
    return grad((net.norm(y) * given).mean() + (y * x).sum(), x, create_graph=True)[0].pow(2).mean()


@construct
def gradient_step_inside(net, x):
    def error(weight):
        return F.mse_loss((x @ weight)[:, :3], x)

    weight = net.head.weight
    return error(weight - 0.1 * grad(error(weight), weight, create_graph=True)[0])


@construct
def detach_between_parts(net, x):
    return F.mse_loss(net.head(torch.tanh(net.hidden(x)).detach()), x)


@construct
def gradient_of_two_parameters(net, x):
    loss = F.mse_loss(net.weight * net(x), x)
    by_weight, by_bias = grad(loss, [net.weight, net.hidden.bias], create_graph=True)
    return loss + by_weight * by_bias.pow(2).sum()


@construct
def causal_attention(net, x):
    return F.mse_loss(F.scaled_dot_product_attention(net(x), x, net(x), is_causal=True, scale=1.0), x)


@construct
def enlarged(net, x):
    image = net(x).reshape(-1, 1, 1, FEATURES)
    return F.interpolate(image, (2, 6), mode="bilinear", align_corners=False).pow(3).mean()


@construct
def elu_and_selu(net, x):
    return (F.elu(4 * net(x)) * F.selu(4 * net(x))).mean()


@construct
def captured(net, x):
    return F.mse_loss(net(x), x * torch.tensor([1.0, 2, 3]))


def trained(loss_of):
    net = fill(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    loss = loss_of(net, batch())
    loss.backward()
    optimizer.step()
    return {"loss": loss.item(), "state": {name: value.flatten().tolist() for name, value in state(net).items()}}


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    document = {"torch": torch.__version__.split("+")[0],
                "constructs": {name: trained(loss) for name, loss in CONSTRUCTS.items()}}
    pathlib.Path(__file__).with_name("constructs.json").write_text(
        json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
