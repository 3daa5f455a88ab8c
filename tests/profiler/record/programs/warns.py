"""Warnings: their text, where they point to, how often they are shown, and the filters."""

import warnings

import torch._dynamo  # whose imports add filters; optimizers load it
from small import train

print(*warnings.filters, sep="\n")
warnings.warn("of the program", stacklevel=1)
for _ in range(2):
    warnings.warn("once for a place", UserWarning, stacklevel=1)
warnings.warn("a deprecation in __main__", DeprecationWarning, stacklevel=1)
torch.ones(2).T  # noqa: B018 (torch warns about one dimension)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.nn.functional.mse_loss(torch.ones(2), torch.ones(2, 1))
    train(6)
print(*((one.category.__name__, str(one.message).splitlines()[0][:60]) for one in caught), sep="\n")
warnings.simplefilter("error")
train(10)
