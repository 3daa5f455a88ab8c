"""Modes of the program's own that see torch's functions and operators."""

from collections import Counter

from small import train
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

seen = Counter()


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), keywords=None):
        seen[getattr(function, "__name__", str(function))] += 1
        return function(*arguments, **(keywords or {}))


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, arguments=(), keywords=None):
        seen[str(operator)] += 1
        return operator(*arguments, **(keywords or {}))


with Functions():
    train(8)
print(*sorted(seen.items()), sep="\n")
seen.clear()
with Operators():
    train(8)
print(*sorted(seen.items()), sep="\n")
train(8)
