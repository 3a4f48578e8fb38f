"""The built-in models, one family in each file. All end in a linear layer, so last-layer gradients need no backward
pass.

A model is a function (input_shape, classes, **options) -> torch.nn.Module, like a model of the user's own. Batches of
images are (records, channels, height, width). These modules are imported to check a configuration: torch is imported
inside functions only.
"""
