"""The site's own copy of the model that jobs train here. An update of any other shape does not leave."""

from torch import nn


def net():
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
