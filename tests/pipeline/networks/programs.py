"""Modules that compute on other things than dense tensors, or by other code than PyTorch's own operators."""

import torch
from torch import nn

torch.library.define("rooflines_programs::product", "(Tensor a, Tensor b) -> Tensor")


@torch.library.impl("rooflines_programs::product", "cpu")
def product(a, b):
    return a @ b


@torch.library.custom_op("rooflines_programs::both", mutates_args=("sums",))
def both(sums: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    sums.add_(torch.ops.rooflines_programs.product(a, b))
    return a.relu(), b * 2


class Loop(nn.Module):
    """In TorchScript its counter lies on the interpreter's stack below the arguments of what it calls."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        for _ in range(2):
            x = torch.tanh(self.layer(x)) + x
        return x


class Programs(nn.Module):
    """Products of 2 * (10 * 4 * 16 * (8 + 16)) for a packed sequence, 2 * (5 * 8 * 4) jagged, 2 * (9 + 9) * 4 sparse, 2 * (3 * 8 * 8)
    of a custom operator, and two of these scripted."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16)
        self.words = nn.Linear(8, 4, bias=False)
        self.scripted = torch.jit.script(Loop())
        places = torch.arange(9)
        self.coo = torch.sparse_coo_tensor(torch.stack((places, places)), torch.ones(9), (9, 9), check_invariants=True)
        self.csr = self.coo.to_sparse_csr()

    def forward(self, packed, jagged, x):
        hidden = self.lstm(packed)[0].data
        words = self.words(jagged * 2).values()
        sparse = self.coo @ x.new_ones(9, 4) + self.csr @ x.new_ones(9, 4)
        sums = x.new_zeros(3, 8)
        both(sums, x, torch.eye(8))
        return hidden.sum() + words.sum() + sparse.sum() + self.scripted(x + sums).sum()


def programs():
    packed = nn.utils.rnn.pack_padded_sequence(torch.rand(5, 3, 8), [5, 3, 2])
    jagged = torch.nested.nested_tensor([torch.rand(2, 8), torch.rand(3, 8)], layout=torch.jagged)
    return Programs(), (packed, jagged, torch.rand(3, 8))
