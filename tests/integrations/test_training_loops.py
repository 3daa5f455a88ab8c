"""Training loops of plain torch. Each source begins with ``MLP``, a network of three linear layers."""

import textwrap

import pytest

from rooflines.roofline.advise.findings import find
from tests.integrations.reports import alone, calls, check_report, steps_taken

# What one forward and backward of the network calls: the first layer needs no gradient of its input.
FORWARD, BACKWARD = 3, 5

LOOPS = {
    "LBFGS calls its closure four times a step": (
        """
        model = mlp()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, tolerance_grad=0, tolerance_change=0)
        def closure():
            optimizer.zero_grad()
            value = loss(model)
            value.backward()
            return value
        for _ in range(100):
            optimizer.step(closure)
        """,
        100,
        {"aten::addmm": 4 * FORWARD, "aten::mm": 4 * BACKWARD},
    ),
    "gradient checkpointing runs the forward again": (
        """
        from torch.utils.checkpoint import checkpoint
        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = mlp(8), mlp()
            def forward(self, inputs):
                return self.last(checkpoint(self.first, inputs, use_reentrant=False))
        model = Network()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(100):
            update(optimizer, loss(model))
        """,
        100,
        {"aten::mm": 2 * BACKWARD + 1},  # the second half also needs the gradient of its input
    ),
    "gradients of four batches are accumulated": (
        """
        model = mlp()
        optimizer = sgd(model)
        for i in range(400):
            loss(model).backward()
            if i % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        """,
        100,
        {"aten::addmm": 4 * FORWARD, "aten::mm": 4 * BACKWARD},
    ),
    "a GAN with two optimizers": (
        """
        generator, discriminator = mlp(8), mlp(1)
        optimize_g, optimize_d = torch.optim.Adam(generator.parameters()), torch.optim.Adam(discriminator.parameters())
        for _ in range(100):
            fake = generator(torch.randn(4, 8))
            update(optimize_d, discriminator(torch.randn(4, 8)).mean() - discriminator(fake.detach()).mean())
            update(optimize_g, discriminator(fake).mean())
        """,
        100,
        {"aten::addmm": 4 * FORWARD, "aten::mm": 4 * BACKWARD + 1},
    ),
    "a WGAN whose critic makes five updates for one of the generator": (
        """
        generator, critic = mlp(8), mlp(1)
        optimize_g, optimize_c = torch.optim.RMSprop(generator.parameters()), torch.optim.RMSprop(critic.parameters())
        for i in range(500):
            update(optimize_c, loss(critic) - critic(generator(torch.randn(4, 8)).detach()).mean())
            if i % 5 == 4:
                update(optimize_g, critic(generator(torch.randn(4, 8))).mean())
        """,
        100,
        {"aten::addmm": 5 * 3 * FORWARD + 2 * FORWARD, "aten::mm": 5 * 2 * BACKWARD + 2 * BACKWARD + 1},
    ),
    "epochs that iterate the loader again": (
        """
        from torch.utils.data import DataLoader, TensorDataset
        model = mlp()
        optimizer = sgd(model)
        loader = DataLoader(TensorDataset(torch.randn(24, 8)), batch_size=4)
        for epoch in range(20):
            for (inputs,) in loader:
                update(optimizer, model(inputs).square().mean())
        """,
        120,
        {"aten::addmm": FORWARD, "aten::mm": BACKWARD},
    ),
    "a loader with two workers": (
        """
        from torch.utils.data import DataLoader, TensorDataset
        model = mlp()
        optimizer = sgd(model)
        loader = DataLoader(TensorDataset(torch.randn(200, 8)), batch_size=4, num_workers=2)
        for epoch in range(2):
            for (inputs,) in loader:
                update(optimizer, model(inputs).square().mean())
        """,
        100,
        {"aten::addmm": FORWARD, "aten::mm": BACKWARD},
    ),
    "three models, one after the other": (
        """
        for outputs in (1, 3, 5):
            model = mlp(outputs)
            optimizer = sgd(model)
            for _ in range(100):
                update(optimizer, loss(model))
        """,
        100,
        {"aten::addmm": FORWARD, "aten::mm": BACKWARD},
    ),
}


# It repeats laws of the others.
SLOW = ("LBFGS calls its closure four times a step",)
GAN = "a GAN with two optimizers"
CASES = [pytest.param(*case, id=name, marks=pytest.mark.slow if name in SLOW else ()) for name, case in LOOPS.items() if name != GAN]


@pytest.mark.ci
@pytest.mark.parametrize(("source", "made", "expected"), CASES)
def test_each_traced_step_is_one_step_of_the_loop(profile_here, source, made, expected):
    analysis = check_report(profile_here(textwrap.dedent(source)), made)
    assert {name: calls(analysis)[name] for name in expected} == expected


@pytest.mark.ci
def test_models_of_few_steps_are_told_apart(profile_here):
    run = profile_here(textwrap.dedent(LOOPS["three models, one after the other"][0]).replace("range(100)", "range(10)"))
    analysis = check_report(run, 10)
    assert calls(analysis)["aten::addmm"] == FORWARD
    assert not any("turn of" in note for note in run.facts.notes)
    # The steps of a model count where their times settled in time, else those of the last one.
    assert len({row.shapes.rpartition("x")[2] for row in analysis.operators if row.name == "aten::addmm"} & {"1", "3", "5"}) == 1


@pytest.mark.ci
def test_the_two_networks_of_a_gan_have_names_of_their_own(profile_here):
    source, made, expected = LOOPS[GAN]
    run = profile_here(textwrap.dedent(source))
    analysis = check_report(run, made)
    assert {name: calls(analysis)[name] for name in expected} == expected
    rows = {row.path: row.calls for row in analysis.modules}
    assert (rows["0"], rows["Sequential.0"]) == (1, 3)
    assert "a step is one turn of 2 optimizers, and ends with the last one" in run.facts.notes


@pytest.mark.ci
def test_slow_data_gives_advice_on_data_loading(profile_here):
    run = profile_here(
        textwrap.dedent("""
        import time
        from torch.utils.data import DataLoader, Dataset
        class Slow(Dataset):
            def __len__(self):
                return 64
            def __getitem__(self, index):
                time.sleep(0.005)
                return torch.randn(8)
        model = mlp()
        optimizer = sgd(model)
        for inputs in DataLoader(Slow(), batch_size=4):
            update(optimizer, model(inputs).square().mean())
        """)
    )
    analysis = check_report(run, 16)
    # where warm-up is over in time, a traced step takes the place of the second one
    assert steps_taken(run) in (15, 16)
    assert analysis.limited_by == "input"
    assert "data" in find(alone(analysis))[0].title.lower()


@pytest.mark.ci
@pytest.mark.parametrize(("made", "traced"), [(3, "early"), (2, "early"), (1, "program")])
def test_few_steps(profile_here, made, traced):
    run = profile_here(
        textwrap.dedent(f"""
        def batches():
            for _ in range({made}):
                yield torch.randn(4, 8)
        model = mlp()
        optimizer = sgd(model)
        for inputs in batches():
            update(optimizer, model(inputs).square().mean())
        """)
    )
    analysis = check_report(run, made)
    assert steps_taken(run) == made
    assert run.facts.steps.traced == traced
    assert calls(analysis)["aten::addmm"] == FORWARD
