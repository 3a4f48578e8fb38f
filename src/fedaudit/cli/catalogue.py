"""What can be named in a configuration, in words. Imports nothing heavy."""

from fedaudit import data
from fedaudit.adversary import attacks
from fedaudit.errors import FedauditError, suggest

MODELS = {
    "linear": "logistic regression; linear regression where there are no classes",
    "mlp": "fully connected, ReLU; hidden = [512, 256, 128] (default)",
    "cnn": "for images: three convolution blocks (two below 24 pixels), linear; filters = 16, 32 (default) or 64",
    "leaf-cnn": "for images: LEAF's handwriting network, two 5 x 5 convolutions (32, 64), 2048 units, linear",
    "resnet8": 'for images: residual network; norm = "group" (default) or "batch"',
    "resnet20": "the same, 20 layers",
    "resnet56": "the same, 56 layers",
    "package.module:factory": "your own: factory(input_shape, classes, **options) -> torch.nn.Module",
}

DEFENCES = {
    "dp-sgd": "record-level DP inside each party (Opacus): Poisson batches, clip, noise or epsilon",
    "higradavg": "subject-level DP inside each party: average by subject, clip, noise or epsilon",
    "dp-fedavg": "user-level DP: clipped updates, noisy sum at the server; or noise at the party (local = true)",
    "clip-only": "dp-sgd without its noise: same batches, same steps, no promise",
    "memguard": "bends served answers until a membership classifier is undecided (strength = mean distortion)",
    "l2": "weight decay (strength)",
    "dropout": "activations dropped while training (strength = chance)",
}


def catalogue(what: str) -> list[tuple[str, str]]:
    lists = {
        "attacks": [(name, entry.about) for name, entry in (attacks.REGISTRY | attacks.SHADOW).items()]
        + [(attacks.ATTRIBUTE, attacks.ATTRIBUTE_ABOUT), (attacks.BLIND, attacks.BLIND_ABOUT)],
        "data": list(data.LOADERS.items()),
        "defences": list(DEFENCES.items()),
        "models": list(MODELS.items()),
    }
    if what not in lists:
        raise FedauditError("unknown-list", f"there is no list of {what!r}", suggest(what, lists))
    return lists[what]
