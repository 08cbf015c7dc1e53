#!/usr/bin/env python3
"""Writes programs.json beside itself: the losses and the weights of whole small programs, trained in PyTorch in double precision.

Needs torch, which the tests do not: tests/golden/golden_programs_test.cpp has the same programs by the same names. Weights and
data come from formulas that both sides compute (`fill`, `data`).
"""
import json
import math
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, SAMPLES = 20, 8


def fill(module):
    """Parameter k, element j: 0.4·sin(1.7·(k + 1) + 0.9·j)."""
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_((0.4 * torch.sin(1.7 * (k + 1) + 0.9 * torch.arange(p.numel(), dtype=torch.float64))).reshape(p.shape))
    return module


def data(step, stream, *shape):
    """Element i of a stream of a step: sin(0.7·step + 2.3·stream + 1.1·i)."""
    count = math.prod(shape)
    return torch.sin(0.7 * step + 2.3 * stream + 1.1 * torch.arange(count, dtype=torch.float64)).reshape(shape)


class Mlp(nn.Module):
    def __init__(self, inputs, hidden, outputs, norm=False):
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.norm = nn.BatchNorm1d(hidden) if norm else nn.Identity()
        self.last = nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))


def result(name, losses, *modules):
    weights = []
    for module in modules:
        for key, value in module.state_dict().items():
            if "num_batches" not in key:
                weights.append(value.flatten().tolist())
    return {"name": name, "losses": losses, "weights": weights}


def train(losses, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())


def siamese():
    net, losses = fill(Mlp(4, 8, 3, norm=True)), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for t in range(STEPS):
        a, b, same = data(t, 0, SAMPLES, 4), data(t, 1, SAMPLES, 4), (data(t, 2, SAMPLES) > 0).double()
        distance = ((net(a) - net(b)) ** 2).sum(1)
        train(losses, optimizer, (same * distance + (1 - same) * F.relu(1 - (distance + 1e-6).sqrt()) ** 2).mean())
    return result("siamese", losses, net)


def gan():
    generator, critic, losses = fill(Mlp(2, 6, 3)), fill(Mlp(3, 6, 1)), []
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.1, momentum=0.9)
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.1, momentum=0.9)
    ones, zeros = torch.ones(SAMPLES, 1, dtype=torch.float64), torch.zeros(SAMPLES, 1, dtype=torch.float64)
    loss = F.binary_cross_entropy_with_logits
    for t in range(STEPS):
        real, z = data(t, 0, SAMPLES, 3), data(t, 1, SAMPLES, 2)
        train(losses, of_critic, loss(critic(real), ones) + loss(critic(generator(z).detach()), zeros))
        train(losses, of_generator, loss(critic(generator(z)), ones))
    return result("gan", losses, generator, critic)


def wgan_gp():
    generator, critic, losses = fill(Mlp(2, 6, 3)), fill(Mlp(3, 6, 1)), []
    of_generator = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.9))
    of_critic = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.9))
    for t in range(STEPS):
        real, z, mix = data(t, 0, SAMPLES, 3), data(t, 1, SAMPLES, 2), data(t, 2, SAMPLES, 1) ** 2
        fake = generator(z).detach()
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
        penalty = ((slope.pow(2).sum(1).sqrt() - 1) ** 2).mean()
        train(losses, of_critic, critic(fake).mean() - critic(real).mean() + 10 * penalty)
        if t % 2:
            train(losses, of_generator, -critic(generator(z)).mean())
    return result("wgan_gp", losses, generator, critic)


def mean_teacher():
    student, teacher, losses = fill(Mlp(4, 8, 3)), fill(Mlp(4, 8, 3)), []
    optimizer = torch.optim.AdamW(student.parameters(), lr=0.01, weight_decay=0.05)
    for t in range(STEPS):
        x, noise, labels = data(t, 0, SAMPLES, 4), data(t, 1, SAMPLES, 4), (data(t, 2, SAMPLES) > 0).long()
        with torch.no_grad():
            target = teacher(x + 0.1 * noise).softmax(1)
        output = student(x)
        train(losses, optimizer, F.cross_entropy(output, labels) + F.mse_loss(output.softmax(1), target))
        with torch.no_grad():
            for p, q in zip(teacher.parameters(), student.parameters()):
                p.copy_(0.9 * p + 0.1 * q)
    return result("mean_teacher", losses, student, teacher)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Mlp(4, 8, 4), Mlp(2, 8, 4)

    def forward(self, x, noise):
        mu, log_var = self.encoder(x).split([2, 2], 1)
        return self.decoder(mu + (0.5 * log_var).exp() * noise), mu, log_var


def vae():
    net, losses = fill(Vae()), []
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for t in range(STEPS):
        x = data(t, 0, SAMPLES, 4)
        y, mu, log_var = net(x, data(t, 1, SAMPLES, 2))
        divergence = -0.5 * (1 + log_var - mu ** 2 - log_var.exp()).sum(1).mean()
        train(losses, optimizer, F.mse_loss(y, x) + 0.1 * divergence)
    return result("vae", losses, net)


class Vq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Mlp(4, 8, 2), Mlp(2, 8, 4)
        self.codes = nn.Embedding(5, 2)


def vq():
    net, losses = fill(Vq()), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for t in range(STEPS):
        x = data(t, 0, SAMPLES, 4)
        z, codes = net.encoder(x), net.codes.weight
        nearest = ((z ** 2).sum(1, keepdim=True) - 2 * z @ codes.T + (codes ** 2).sum(1)).argmin(1)
        q = net.codes(nearest)
        y = net.decoder(z + (q - z).detach())
        train(losses, optimizer, F.mse_loss(y, x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach()))
    return result("vq", losses, net)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(7, 4), nn.Linear(4 + 3, 8), nn.Linear(8, 3)

    def forward(self, ids, mask, dense):
        words = (self.words(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return self.head(torch.relu(self.mix(torch.cat([words, dense], 1))))


def multi_input():
    net, losses = fill(Classifier()), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for t in range(STEPS):
        ids = ((data(t, 0, SAMPLES, 5) + 1) * 3.4).floor().long()
        mask = (data(t, 1, SAMPLES, 5) > -0.5).double() + 0.01
        labels = ((data(t, 3, SAMPLES) + 1) * 1.4).floor().long()
        output = net(ids, mask, data(t, 2, SAMPLES, 3))
        train(losses, optimizer, F.cross_entropy(output, labels, label_smoothing=0.1, ignore_index=2))
    return result("multi_input", losses, net)


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    programs = [f() for f in (siamese, gan, wgan_gp, mean_teacher, vae, vq, multi_input)]
    document = {"torch": torch.__version__.split("+")[0], "programs": programs}
    pathlib.Path(__file__).with_name("programs.json").write_text(
        json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
