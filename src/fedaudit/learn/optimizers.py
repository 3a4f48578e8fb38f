"""Optimizers of torch, without its compiler.

An optimizer of torch asks the compiler to leave it alone, and loads all of the compiler for that: two seconds of every
process, although nothing here is compiled. These are the same methods, without what torch wraps around them.
"""

from inspect import unwrap

import torch
from torch.optim import Optimizer


class Adam(torch.optim.Adam):
    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class SGD(torch.optim.SGD):
    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.SGD.step))
