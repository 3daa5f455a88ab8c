"""Evaluation between training steps belongs to no step, and inference has steps of its own."""

import textwrap

import pytest

from tests.integrations.reports import calls, check_report, steps_taken

FORWARD, BACKWARD = 3, 5
TRAINING_STEP = {"aten::addmm": FORWARD, "aten::mm": BACKWARD}

EVALUATES = """
model = mlp()
optimizer = sgd(model)

def train():
    model.train()
    update(optimizer, loss(model))

@torch.no_grad()
def test(calls):
    model.eval()
    for _ in range(calls):
        model(torch.randn(64, 8))
"""


@pytest.mark.ci
@pytest.mark.parametrize("loop", [
    "for i in range(100):\n    train()\n    if i % 10 == 9: test(7)",
    "for i in range(100):\n    train()\n    test(1)",
    "for i in range(100):\n    if i % 25 == 0: test(200)\n    train()",
], ids=["every ten steps", "after each step", "before the first step"])  # fmt: skip
def test_evaluation_is_no_part_of_a_step(profile_here, loop):
    run = profile_here(EVALUATES + loop)
    analysis = check_report(run, 100)
    assert {name: calls(analysis)[name] for name in TRAINING_STEP} == TRAINING_STEP
    assert not any("64x8" in row.shapes for row in analysis.operators), "the shapes of the evaluation"
    assert any(note.startswith("the program evaluated its model") for note in run.facts.notes)


@pytest.mark.ci
def test_the_last_model_that_is_called_ends_a_step_of_inference(profile_here):
    run = profile_here(
        textwrap.dedent("""
        encoder, decoder = mlp(8).eval(), mlp(3).eval()
        with torch.inference_mode():
            for _ in range(100):
                decoder(encoder(torch.randn(4, 8)))
        """)
    )
    analysis = check_report(run, 100, phases={"forward"}, mode="inference")
    assert calls(analysis)["aten::addmm"] == 2 * FORWARD
    assert {"0", "Sequential.0"} <= {row.path for row in analysis.modules}


@pytest.mark.ci
def test_sixty_calls(profile_here):
    run = profile_here("model = mlp().eval()\nwith torch.no_grad():\n    for _ in range(60): model(torch.randn(4, 8))\n")
    analysis = check_report(run, 60, phases={"forward"}, mode="inference")
    assert calls(analysis)["aten::addmm"] == FORWARD
    assert len(run.facts.steps.timed_ns) > 10


@pytest.mark.ci
def test_a_program_without_a_step_is_recorded_as_a_whole(profile_here):
    run = profile_here("a = torch.randn(64, 64)\nb = a @ a\nc = b @ a\n")
    analysis = check_report(run, 0, phases={"forward"}, mode="inference", modules=False)
    assert (run.facts.steps.traced, steps_taken(run)) == ("program", 0)
    assert calls(analysis)["aten::mm"] == 2


@pytest.mark.ci
def test_losses_and_averages_in_an_evaluation_do_not_end_it(profile_here):
    program = EVALUATES.replace(
        "        model(torch.randn(64, 8))", "        criterion(model(torch.randn(64, 8))), average(torch.randn(64, 8))"
    )
    before = "import copy\n"
    setup = "criterion, average = nn.Identity(), copy.deepcopy(model).eval()\n"
    run = profile_here(before + program + setup + "for i in range(100):\n    train()\n    if i % 10 == 9: test(7)")
    analysis = check_report(run, 100)
    assert not any("64x8" in row.shapes for row in analysis.operators)
    (note,) = [note for note in run.facts.notes if note.startswith("the program evaluated its model")]
    assert 5 <= int(note.split()[5]) <= 10
