"""A trained DFlash drafter is the one that is served, by its definition as a plain loop."""

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.process.drafters.drafter_table import draft_head_bytes, kind_of
from tests.support.dflash_models import BLOCK, DFlashOracle
from tests.support.tiny_models import VOCAB
from training.block_student import BlockStudent
from training.dflash import BlockCourse, CourseSize, ReadModel, described


def texts() -> list[list[int]]:
    """Return sentences of a language in which each token follows from the one before."""
    return [[(start + 7 * n) % (VOCAB - 1) for n in range(30)] for start in range(0, VOCAB - 1, 2)]


def course(directory: Path, steps: int = 30, layers: int = 2) -> BlockCourse:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model.requires_grad_(False)
    said = described(model.config, texts(), layers, BLOCK, 48)
    torch.manual_seed(1)
    target_layers = tuple(said["dflash_config"]["target_layer_ids"])
    return BlockCourse(
        BlockStudent(said), ReadModel(model, target_layers), texts(), CourseSize(steps, 3e-3, 4, 8)
    )


def test_training_lowers_the_loss_and_the_saved_drafter_is_the_trained_one(directory, tmp_path):
    made = course(directory)
    before, rested = made.evaluate(), list[int]()
    made.learn(1e9, lambda: rested.append(made.done))
    after = made.evaluate()
    assert after.loss < before.loss
    made.student.write(tmp_path)
    kind = kind_of(str(tmp_path))
    assert kind is not None and kind.module.endswith("dflash_heads")
    assert draft_head_bytes(str(tmp_path), directory, "bf16") > 0

    said = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    stored = load_file(tmp_path / "model.safetensors")
    tensors = {name: each.float() for name, each in stored.items()}
    plain = DFlashOracle.over(made.target.model, said, tensors)
    made.student.load_state_dict(plain.tensors)
    tokens = texts()[3]
    states = plain.states(tokens)
    anchors = torch.tensor([5, 17])
    with torch.no_grad():
        found = made.guesses(states, torch.tensor(tokens), anchors)
    for anchor, guesses in zip(anchors.tolist(), found, strict=True):
        wanted = plain.guesses(tokens[: anchor + 1], states[:anchor], BLOCK - 1)
        torch.testing.assert_close(guesses, torch.stack(wanted), atol=1e-4, rtol=1e-4)


def test_a_course_that_was_stopped_goes_on_as_if_it_had_not(directory, tmp_path):
    whole, first, second = (course(directory, steps=8) for _ in range(3))
    whole.learn(1e9, lambda: None)
    first.size.steps = 3
    first.learn(1e9, lambda: None)
    first.save(tmp_path / "course.pt")
    second.resume(tmp_path / "course.pt")
    assert second.done == 3
    second.learn(1e9, lambda: None)
    for one, other in zip(whole.student.parameters(), second.student.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_course_of_another_drafter_is_refused(directory, tmp_path):
    course(directory, steps=8).save(tmp_path / "course.pt")
    with pytest.raises(ValueError, match="another shape"):
        course(directory, steps=8, layers=1).resume(tmp_path / "course.pt")
    with pytest.raises(ValueError, match="8 steps"):
        course(directory, steps=9).resume(tmp_path / "course.pt")


def test_masks_learn_what_the_model_would_say_and_nothing_behind_a_text(directory):
    made = course(directory)
    marks = made.marks(texts()[0][:4], random.Random(1))
    assert 0.0 <= marks.accepted <= 2.0 and marks.loss > 0.0
    assert made.student.said["dflash_config"]["mask_token_id"] == VOCAB - 1
    assert read_config(directory).vocab_size == VOCAB
