"""What can be named in a configuration, in words. Imports nothing heavy."""

from fedaudit import attacks, data
from fedaudit.errors import FedauditError, suggest

MODELS = {
    "mlp": "fully connected, ReLU; hidden = [512, 256, 128]",
    "package.module:factory": "your own: factory(input_shape, classes, **options) -> torch.nn.Module",
}


def catalogue(what: str) -> list[tuple[str, str]]:
    lists = {
        "attacks": [(name, entry.about) for name, entry in attacks.REGISTRY.items()]
        + [(attacks.BLIND, attacks.BLIND_ABOUT)],
        "data": list(data.LOADERS.items()),
        "models": list(MODELS.items()),
    }
    if what not in lists:
        raise FedauditError("unknown-list", f"there is no list of {what!r}", suggest(what, lists))
    return lists[what]
