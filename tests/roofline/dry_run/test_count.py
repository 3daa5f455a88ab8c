"""``rooflines.count``: totals that add up, inputs of every kind, and what happens where fake tensors will not do."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import bias as attention_bias

import rooflines
from rooflines.errors import UsageError, WorkloadError
from rooflines.profiler.calls.fakes import fake_tensors
from rooflines.profiler.options import PointOptions
from rooflines.roofline.count.formulas.registry import FORMULAS
from rooflines.roofline.dry_run.count import count_network


@pytest.mark.ci
@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 9), inside=st.integers(1, 9), outside=st.integers(1, 9), bias=st.booleans())
def test_a_linear_layer_to_the_integer(rows, inside, outside, bias):
    layer, x = nn.Linear(inside, outside, bias=bias), torch.rand(rows, inside, requires_grad=True)
    forward = rooflines.count(layer, x)
    product = 2 * rows * inside * outside
    assert (forward.matrix_flops, forward.other_flops) == (product, rows * outside * bias)
    assert forward.bytes == 4 * (rows * inside + inside * outside + outside * bias + rows * outside)
    assert rooflines.count(layer, x, backward=True).matrix_flops == 3 * product
    assert rooflines.count(layer, x.detach(), backward=True).matrix_flops == 2 * product


class Branches(nn.Module):
    """A dict in, a dict out, keywords, a layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.head = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2))

    def forward(self, batch, *, twice=False):
        x = self.shared(batch["x"])
        if twice:
            x = self.shared(x)
        return {"out": self.head(x), "labels": batch["labels"]}


BATCH = {"x": torch.rand(3, 4), "labels": torch.zeros(3, dtype=torch.long)}


def test_keywords_mappings_and_a_module_called_twice():
    model = Branches()
    once, twice = rooflines.count(model, BATCH), rooflines.count(model, BATCH, twice=True)
    assert once.matrix_flops == 2 * 3 * 4 * 4 + 2 * 3 * 4 * 2
    assert twice.matrix_flops - once.matrix_flops == 2 * 3 * 4 * 4
    assert {row.path: row.calls for row in twice.modules}["shared"] == 2
    assert rooflines.count(model, BATCH, backward=True).matrix_flops == 3 * once.matrix_flops - 2 * 3 * 4 * 4


def test_operators_modules_and_totals_are_the_same_work():
    counted = rooflines.count(Branches(), BATCH, twice=True, backward=True)
    operators, modules = counted.to_dataframe(), counted.to_dataframe("modules")
    for field in ("flops", "matrix_flops", "bytes", "bytes_read", "bytes_written"):
        assert operators[field].sum() == getattr(counted, field)
    assert counted.bytes == counted.bytes_read + counted.bytes_written
    assert counted.flops == counted.matrix_flops + counted.other_flops
    by_path = modules.set_index("path")
    inside = operators[operators["module"] != ""]
    for field in ("flops", "matrix_flops", "bytes"):
        assert by_path.loc["head", field] == by_path.loc["head.0", field] + by_path.loc["head.1", field]
        assert by_path.loc["shared", field] == inside[inside["module"] == "shared"][field].sum()
    # what runs in no module: the sum that is back-propagated
    outside = operators[(operators["module"] == "")]
    assert by_path.loc["", "flops"] == counted.flops - outside["flops"].sum()
    assert set(outside["name"]) == {"aten::sum", "aten::ones_like"}
    assert list(modules["depth"]) == [path.count(".") + 1 if path else 0 for path in modules["path"]]


def test_counting_twice_gives_the_same():
    model = Branches()
    assert rooflines.count(model, BATCH, backward=True) == rooflines.count(model, BATCH, backward=True)


def test_to_dict_is_json_without_what_is_not_known():
    counted = rooflines.count(lambda x: torch.ops.aten.view(x, [4]), torch.rand(2, 2))
    assert (counted.flops, counted.bytes, counted.coverage, counted.operators) == (0, 0, 1.0, ())
    plain = rooflines.count(Branches(), BATCH).to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["schema"] == "rooflines.count/1"
    assert {row["kind"] for row in plain["operators"]} == {"counted"}
    assert all("reason" not in row for row in plain["operators"])


# --- any function, any tensors -----------------------------------------------------------------------------------------------------


def test_a_closure_over_a_real_module_leaves_it_alone():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x, generator = torch.rand(3, 4), torch.get_rng_state()
    counted = rooflines.count(lambda x: model(x).pow(2).mean(), x, backward=True)
    assert counted.matrix_flops == 2 * 2 * 3 * 4 * 4
    assert all(torch.equal(model.state_dict()[name], value) for name, value in state.items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), generator)
    assert model.training


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_callers_gradient_mode_holds(grad):
    layer = nn.Linear(3, 5)
    with grad():
        assert rooflines.count(layer, torch.rand(2, 3)).matrix_flops == 60


def test_modules_without_data_and_modes_that_are_on():
    with torch.device("meta"):
        meta = nn.Linear(3, 5)
    assert rooflines.count(meta, torch.empty(2, 3, device="meta")).matrix_flops == 60
    with fake_tensors():
        fake, x = nn.Linear(3, 5), torch.rand(2, 3)
        assert rooflines.count(fake, x).matrix_flops == 60
    assert rooflines.count(fake, x).tensors == "fake"


def test_integers_and_complex_numbers():
    assert rooflines.count(torch.add, torch.ones(3, dtype=torch.int32), torch.ones(3, dtype=torch.int32)).bytes == 36
    assert rooflines.count(torch.add, *[torch.ones(3, dtype=torch.complex64)] * 2).bytes == 72


def test_a_gradient_of_a_gradient():
    def penalty(x):
        (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return gradient.pow(2).sum()

    counted = rooflines.count(penalty, torch.rand(4, requires_grad=True), backward=True)
    assert counted.coverage == 1.0
    assert set(counted.to_dataframe()["phase"]) == {"forward", "backward"}


def test_a_networks_size_does_not_matter():
    with fake_tensors():
        layer = nn.Linear(1 << 20, 1 << 20)  # 4 TiB
        assert rooflines.count(layer, torch.rand(1, 1 << 20)).matrix_flops == 2 << 40


# --- fallback and errors -----------------------------------------------------------------------------------------------------------


def test_shapes_that_depend_on_data_run_on_real_tensors_and_say_so():
    counted = rooflines.count(lambda x: x[x > 0.5] * 2, torch.tensor([0.1, 0.7, 0.9]))
    assert counted.tensors == "real"
    assert "nonzero" in counted.note
    assert counted.to_dataframe().set_index("name").loc["aten::mul", "flops"] == 2
    assert rooflines.count(torch.sin, torch.rand(2)).note == ""


def test_real_tensors_leave_the_generator_and_the_module_alone():
    class Drops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            return self.norm(x)[x[:, 0] > torch.rand(len(x))]

    model, x = Drops(), torch.rand(6, 2)
    mean, generator = model.norm.running_mean.clone(), torch.get_rng_state()
    assert rooflines.count(model, x).tensors == "real"
    assert torch.equal(model.norm.running_mean, mean)
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_rows_of_different_lengths_are_unknown_and_crash_nothing():
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    padding = torch.tensor([[False, False, True], [False, False, False]])
    with torch.inference_mode():
        counted = rooflines.count(layer, torch.rand(2, 3, 8), src_key_padding_mask=padding)
    assert counted.tensors == "real"
    assert "aten::_transformer_encoder_layer_fwd" in {row.name for row in counted.operators if row.kind == "unknown"}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_inputs_are_counted_by_the_operators_on_their_values_where_torch_has_such():
    strided, jagged = (
        rooflines.count(nn.Linear(8, 4), torch.nested.nested_tensor([torch.rand(2, 8), torch.rand(3, 8)], layout=layout))
        for layout in (torch.strided, torch.jagged)
    )
    assert (strided.coverage, strided.matrix_flops) == (0, 0)
    assert [row.name for row in strided.operators] == ["aten::linear"]
    assert (jagged.coverage, jagged.matrix_flops) == (1, 2 * (2 + 3) * 8 * 4)


def test_lazy_modules_are_counted_and_stay_lazy():
    model = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d())
    for backward, matrix_flops in ((False, 2 * 4 * 8 * 5), (True, 2 * 2 * 4 * 8 * 5)):
        assert rooflines.count(model, torch.rand(4, 8), backward=backward).matrix_flops == matrix_flops
        assert isinstance(model[0], nn.LazyLinear)
        assert nn.parameter.is_lazy(model[0].weight)
    assert model(torch.rand(3, 6)).shape == (3, 5)


def test_the_outputs_of_a_dataclass_are_propagated_back():
    @dataclass
    class Answer:
        scores: torch.Tensor
        number: int

    layer = nn.Linear(3, 5)
    assert rooflines.count(lambda x: Answer(layer(x), 7), torch.rand(2, 3), backward=True).matrix_flops == 2 * 60


def test_an_unknown_operator_is_listed_and_in_no_total():
    with torch.library._scoped_library("rooflines_test", "DEF") as library:
        library.define("secret(Tensor x) -> Tensor")
        library.impl("secret", lambda x: torch.from_numpy(x.numpy() + 1), "CompositeExplicitAutograd")
        counted = rooflines.count(lambda x: torch.ops.rooflines_test.secret(x) * 2, torch.rand(3))
    assert (counted.coverage, counted.flops) == (0.5, 3)
    row = counted.to_dataframe().set_index("name").loc["rooflines_test::secret"]
    assert (row["kind"], row["reason"]) == ("unknown", "no formula")


def test_a_custom_operator_is_what_its_kernel_calls_unless_it_has_a_formula():
    with torch.library._scoped_library("rooflines_test", "DEF") as library:
        for name in ("product", "twice", "priced"):
            library.define(f"{name}(Tensor a, Tensor b) -> Tensor")
        library.impl("product", torch.mm, "CPU")
        torch.library.register_fake("rooflines_test::product", torch.mm, lib=library)
        library.impl("twice", lambda a, b: torch.ops.rooflines_test.product(a, b) * 2, "CPU")
        library.impl("priced", torch.mm, "CPU")
        rooflines.formula("rooflines_test::priced", category="matmul")(lambda _: rooflines.Work(7, 0, 0, 0))
        a, b = torch.rand(2, 3), torch.rand(3, 5, requires_grad=True)
        counted = rooflines.count(torch.ops.rooflines_test.twice, a, b.detach())
        assert (counted.matrix_flops, counted.other_flops, counted.tensors) == (2 * 2 * 3 * 5, 2 * 5, "real")
        assert rooflines.count(torch.ops.rooflines_test.priced, a, b.detach()).matrix_flops == 7
        # Of tensors that are fake already, what it calls is not known.
        with fake_tensors() as mode:
            fake = mode.from_tensor(a), mode.from_tensor(b.detach())
            (row,) = rooflines.count(torch.ops.rooflines_test.product, *fake).operators
        assert (row.name, row.kind) == ("rooflines_test::product", "unknown")
    FORMULAS.pop("rooflines_test::priced")


class Counting(nn.Module):
    """Changes all of its state, then asks for data and raises unless it is told not to."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.BatchNorm1d(3), 0

    def forward(self, x, fails=False):
        self.calls += 1
        scaled = self.layer(x) * torch.rand(1)
        scaled.sum().backward()
        if fails or not bool((x > 0).any()):
            raise ValueError("no positive number")
        return scaled


def test_what_fails_on_fake_tensors_is_run_on_real_ones_and_nothing_changes():
    model, x = Counting(), torch.rand(4, 3)
    torch.manual_seed(3)
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    assert rooflines.count(model, x).tensors == "real"
    with pytest.raises(ValueError, match="no positive number") as raised:
        rooflines.count(model, x, fails=True)
    assert raised.value.__context__ is None
    assert model.calls == 0
    assert model.layer.weight.grad is None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_tensor_subclass_is_made_in_a_recording():
    query, key = torch.rand(2, 8, 16, 32), torch.rand(2, 8, 24, 32)
    mask = attention_bias.causal_lower_right
    counted = rooflines.count(lambda: nn.functional.scaled_dot_product_attention(query, key, key, attn_mask=mask(16, 24)))
    assert counted.matrix_flops == 2 * 2 * 8 * 16 * 24 * (32 + 32)


def test_primitives_of_forward_derivatives_have_formulas():
    x = torch.rand(4)
    counted = rooflines.count(torch.func.hessian(lambda x: (torch.tanh(x) / (1 + x)).sum()), x)
    assert counted.coverage == 1.0
    assert {"prims::add", "prims::mul"} <= set(counted.to_dataframe()["name"])


def test_a_network_that_is_too_large_to_be_real_is_refused(tmp_path):
    factory = tmp_path / "large.py"
    factory.write_text(
        "import torch\n"
        "class Chosen(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x[self.bias[:4] > 0])\n"
        "def make(): return Chosen(1 << 24, 1 << 20), torch.rand(4)\n"
    )
    with pytest.raises(WorkloadError, match=r"need 64\.0 TiB, .* are free \(run on real tensors.*nonzero"):
        count_network(f"{factory}:make", PointOptions(device="cpu"))


def test_the_functions_own_error_passes_through():
    with pytest.raises(ZeroDivisionError):
        rooflines.count(lambda x: 1 // 0, torch.rand(2))
    with pytest.raises(RuntimeError, match=r"same reduction dim|cannot be multiplied"):
        rooflines.count(torch.mm, torch.rand(2, 3), torch.rand(2, 3))


def test_objects_that_hold_tensors_are_left_as_they_were():
    class Cache:
        def __init__(self, keys):
            self.keys = keys

        def add(self, key):
            self.keys = torch.cat([self.keys, key])
            return self.keys

    cache = Cache(torch.rand(3, 2))

    def step(key, cache, real):
        keys = cache.add(key)
        return keys[keys > 0.5] if real else keys

    before = cache.keys
    for real in (False, True):
        counted = rooflines.count(step, torch.rand(1, 2), cache, real)
        assert counted.tensors == ("real" if real else "fake")
        assert cache.keys is before


@pytest.mark.parametrize("real", [False, True])
def test_a_tensor_given_twice_stays_one(real):
    """Attention projects query, key and value at once where they are the same."""
    attention, x = nn.MultiheadAttention(8, 2), torch.rand(5, 3, 8)

    def step(query, key, value):
        found = attention(query, key, value)[0]
        return found[found > 0] if real else found

    counted = rooflines.count(step, x, x, value=x)
    assert counted.tensors == ("real" if real else "fake")
    assert counted.to_dataframe().set_index("name").loc["aten::addmm", "calls"].tolist() == [1, 1]  # in and out


def test_backward_needs_a_gradient():
    with pytest.raises(UsageError, match="requires a gradient"):
        rooflines.count(torch.sin, torch.rand(2), backward=True)
