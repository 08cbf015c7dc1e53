"""Tandem's networks in PyTorch, with the names that its weights files have: state dicts load as they are.

All that the make_*.py beside it train, save and load is here. Without arguments networks have the sizes of
nn::make_network. Images are (N,C,H,W).
"""
import torch
from torch import nn
from torch.nn.functional import max_pool2d, pad, relu


class Mlp(nn.Module):
    def __init__(self, blocks=2, inputs=3072, hidden=256, classes=10):
        super().__init__()
        self.blocks = blocks
        for i in range(blocks):
            self.add_module(f"hidden{i}", nn.Linear(inputs if i == 0 else hidden, hidden))
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        x = x.flatten(1)
        for i in range(self.blocks):
            x = relu(getattr(self, f"hidden{i}")(x))
        return self.head(x)


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return relu(x + self.second(relu(self.first(x))))


class MlpResidual(nn.Module):
    def __init__(self, blocks=4, inputs=3072, hidden=256, classes=10):
        super().__init__()
        self.blocks = blocks
        self.stem = nn.Linear(inputs, hidden)
        for i in range(blocks):
            self.add_module(f"block{i}", ResidualBlock(hidden))
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        x = relu(self.stem(x.flatten(1)))
        for i in range(self.blocks):
            x = getattr(self, f"block{i}")(x)
        return self.head(x)


class Snn(nn.Module):
    def __init__(self, layers=32, inputs=3072, width=2048, classes=10):
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(inputs if i == 0 else width, width) for i in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.hidden:
            x = nn.functional.selu(layer(x))
        return self.head(x)


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)

    def forward(self, x):
        return max_pool2d(relu(self.norm(self.conv(x))), 2)


class ConvNet(nn.Module):
    def __init__(self, widths=(16, 32, 64), channels=3, classes=10):
        super().__init__()
        self.blocks = len(widths)
        for i, (a, b) in enumerate(zip((channels, *widths), widths)):
            self.add_module(f"block{i}", ConvBlock(a, b))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x):
        for i in range(self.blocks):
            x = getattr(self, f"block{i}")(x)
        return self.head(x.mean((2, 3)))


class BasicBlock(nn.Module):
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


class ResNet(nn.Module):
    def __init__(self, depth, width=16, channels=3, classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        for layer, (a, b) in enumerate(((width, width), (width, 2 * width), (2 * width, 4 * width))):
            self.add_module(f"layer{layer + 1}", nn.Sequential(*[
                BasicBlock(a if i == 0 else b, b, 2 if i == 0 and layer > 0 else 1) for i in range((depth - 2) // 6)]))
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x):
        x = relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class Vgg(nn.Module):
    """Named and built as torchvision's: `stages` are the widths of convolutions between poolings, `pixels` what they
    leave of an image, `hidden` the widths behind the flattening."""

    def __init__(self, stages, pixels, hidden, dropout=0.5, channels=3, classes=10):
        super().__init__()
        layers, inputs = [], channels
        for widths in stages:
            for width in widths:
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        layers, inputs = [], inputs * pixels
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout)]
            inputs = width
        self.classifier = nn.Sequential(*layers, nn.Linear(inputs, classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def vgg16(width=64, hidden=4096, **arguments):
    stages = [[times * width] * count for count, times in ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))]
    return Vgg(stages, pixels=1, hidden=[hidden, hidden], **arguments)


class Flattened(nn.Module):
    """Has what is laid out differently: convolutions, batch norm's counter, a linear layer after a flattening."""

    def __init__(self, classes):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.down = nn.Conv2d(4, 5, 2, bias=False)
        self.fc, self.head = nn.Linear(5 * 2 * 2, 6), nn.Linear(6, classes)

    def forward(self, x):  # (N,C,6,6)
        h = max_pool2d(relu(self.norm(self.conv(x))), 2)
        return self.head(relu(self.fc(relu(self.down(h)).flatten(1))))


def after_training(model, *image):
    """In evaluation, with statistics other than those of a new network."""
    model(torch.randn(8, *image) + 0.5)
    return model.eval()


def resnet(depth):
    return lambda **arguments: ResNet(depth, **arguments)


NETWORKS = {"mlp": Mlp, "mlp-residual": MlpResidual, "convnet": ConvNet, "resnet20": resnet(20), "resnet32": resnet(32),
            "resnet56": resnet(56), "vgg16": vgg16, "snn": Snn}
