"""A student distilled from a tiny model learns to predict as it does, and is served."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.hub import Location
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.loader import load
from draftwerk.speculative.rounds import NO_DRAFT
from tests.support.runners import make_runner
from tests.support.tiny_models import VOCAB, save_tiny
from training.distillation import StudentCourse, Teacher, lessons
from training.student_model import begin, described_layers, kept, write

STEPS = 30


def texts() -> list[list[int]]:
    """Return sentences of several lengths."""
    return [[(start + 7 * n) % VOCAB for n in range(8 + start % 5)] for start in range(60)]


def course(directory: Path, folder: Path, layers: int = 1) -> StudentCourse:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    folder.mkdir(exist_ok=True)
    head = model.get_output_embeddings().weight.detach()
    taught = lessons(texts(), 64)
    return StudentCourse(
        begin(model.model, layers), Teacher(model.model, folder), head, taught, STEPS, 3e-3
    )


def test_every_text_is_in_one_lesson_and_padding_is_no_token():
    found = lessons(texts(), 64)
    read = [row[real].tolist() for one in found for row, real in zip(*one[1:], strict=True)]
    assert sorted(read) == sorted(texts())
    assert all(one.tokens.numel() <= 64 for one in found)
    assert [one.number for one in found] == list(range(len(found)))


def test_a_student_has_the_models_lowest_and_uppermost_layers():
    assert kept(30, 4) == [0, 1, 28, 29]
    assert kept(30, 3) == [0, 1, 29]
    assert kept(3, 3) == [0, 1, 2]


def test_a_student_learns_and_goes_on_where_it_stopped(directory, tmp_path):
    rests: list[None] = []
    whole = course(directory, tmp_path / "states")
    before = whole.evaluate()
    whole.learn(1e9, lambda: rests.append(None))
    after = whole.evaluate()
    assert whole.done == STEPS and len(rests) == STEPS // 20
    assert after.divergence < before.divergence and after.distance < 0.9 * before.distance

    half = course(directory, tmp_path / "states")
    half.steps = STEPS // 2
    half.learn(1e9, lambda: None)
    half.save(tmp_path / "half.pt")
    rest = course(directory, tmp_path / "states")
    with pytest.raises(ValueError, match=f"a course of {STEPS // 2} steps, not {STEPS}"):
        rest.resume(tmp_path / "half.pt")
    half.steps = STEPS
    half.save(tmp_path / "course.pt")
    rest.resume(tmp_path / "course.pt")
    assert rest.done == STEPS // 2
    rest.learn(1e9, lambda: None)
    for one, other in zip(whole.student.parameters(), rest.student.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_held_out_is_never_learnt_from(directory, tmp_path):
    found = course(directory, tmp_path / "states")
    taught = {found._lesson(step).number for step in range(4 * len(found.lessons))}
    assert taught == {lesson.number for lesson in found.lessons}
    assert not taught & {lesson.number for lesson in found.held_out}


def test_a_student_is_read_as_any_model(directory, tmp_path):
    found = course(directory, tmp_path / "states")
    write(found.student, None, directory, tmp_path / "student")
    info = read_info(Location("student", tmp_path / "student"))
    target = read_info(Location("model", directory))
    assert info.vocab_size == target.vocab_size
    assert info.kv_heads_per_token < target.kv_heads_per_token
    weights = load(str(tmp_path / "student"), torch.float32).weights
    assert len(weights.layers) == 1
    torch.testing.assert_close(
        weights.norm, found.student.norm.weight.detach(), rtol=1e-2, atol=1e-2
    )


QWEN = {"layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 5}
MODELS = {
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama": ("llama", {"tie_word_embeddings": False}),
    "qwen2, tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3, windows": (
        "qwen3",
        {"tie_word_embeddings": False, "num_hidden_layers": 4, "use_sliding_window": True, **QWEN},
    ),
}


@pytest.mark.parametrize(("family", "changes"), MODELS.values(), ids=MODELS)
def test_a_served_student_chooses_as_the_one_that_was_evaluated(family, changes, tmp_path):
    model, directory = tmp_path / "model", tmp_path / "student"
    head = save_tiny(model, family, seed=3, **changes).get_output_embeddings().weight
    found = course(model, tmp_path / "states", layers=2)
    found.learn(1e9, lambda: None)
    write(found.student, None if changes["tie_word_embeddings"] else head, model, directory)
    same = count = 0
    for lesson in found.held_out:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            states = found.student(lesson.tokens).last_hidden_state.float()
        evaluated = (states @ found.small.T).argmax(-1)
        for tokens, real, chosen in zip(lesson.tokens, lesson.real, evaluated, strict=True):
            served = served_choices(directory, tokens[real].tolist())
            same += sum(map(int.__eq__, served, chosen[real].tolist()))
            count += len(served)
    assert same / count > 0.9, "what is left is rounding"


def served_choices(directory: Path, tokens: list[int]) -> list[int]:
    """Return a served model's first choice after each token of a text."""
    runner = make_runner(directory)
    layout = BatchBuilder(runner.pages.block_size)
    layout.add(tokens, 0, tuple(range(len(tokens))), NO_DRAFT, samples=False)
    layout.outputs = list(range(len(tokens)))
    return runner.parts.run(layout).argmax(-1).tolist()


def test_a_student_keeps_what_its_layers_are() -> None:
    described = {"layer_types": ["a", "b", "c", "d"], "no_rope_layers": [1, 1, 1, 0], "other": 5}
    assert described_layers(described, kept(4, 3)) == {
        "num_hidden_layers": 3,
        "layer_types": ["a", "b", "d"],
        "no_rope_layers": [1, 1, 0],
    }
