"""The models of ours: one family a file. All end in a linear layer, so that last-layer gradients need no backward pass.

A model is a function (input_shape, classes, **options) -> torch.nn.Module, as one of the user's own is. Batches of
images are (records, channels, height, width). These modules are imported to check a configuration: torch is imported
inside functions only.
"""
