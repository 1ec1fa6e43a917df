"""A draft head learns from what a tiny model says, and then is the network that is served."""

from pathlib import Path

import pytest
import torch

from model.draft_head import TorchStep, find, save
from model.loader import load
from tests.model.tiny import VOCAB, save_tiny
from training.head import DEPTHS, Course, Trained, finished, frequent, look


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    save_tiny(tmp_path, "llama", seed=3)
    return tmp_path


def texts() -> list[list[int]]:
    """Return sentences of a language in which each token follows from the one before."""
    return [[(start + 7 * n) % VOCAB for n in range(40)] for start in range(0, VOCAB, 2)]


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
def test_a_head_learns_and_what_is_saved_is_what_was_learnt(directory, tmp_path):
    torch.manual_seed(1)
    target = load(str(directory), torch.float32)
    corpus = look(texts(), directory)
    vocabulary = frequent(texts(), 64, VOCAB)
    head = Trained(target.config.hidden_size, 64)
    weights = target.weights
    small = weights.head[vocabulary]
    course = Course(corpus, weights.embedding.bfloat16(), small.bfloat16(), head, batch=256)
    rested: list[str] = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        before = float(course.marks(0)[0][0])
    course.learn(60, 1e-2, lambda: rested.append(course.judge()))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        losses, shares = course.marks(0)
    assert len(losses) == len(shares) == DEPTHS and rested
    assert float(losses[0]) < 0.5 * before

    path = tmp_path / "head.safetensors"
    save(finished(head, vocabulary), weights, path)
    served = find(str(path), target.config, weights)
    assert served is not None
    states, tokens = corpus.hidden[:5].float(), corpus.tokens[1:6]
    step = TorchStep(served, weights)(states, tokens.tolist(), 3)
    with torch.no_grad():
        learnt = head(states, weights.embedding[tokens])
    assert (step.states - learnt).norm() < 0.02 * learnt.norm(), "matrices are kept in bf16"


def test_places_near_a_text_s_end_are_not_asked_for_what_follows(directory):
    corpus = look(texts(), directory)
    assert corpus.left[:41].tolist() == [*range(39, -1, -1), 39]
    assert len(corpus.tokens) == len(corpus.hidden) == len(corpus.left)
    vocabulary = frequent(texts(), 32, VOCAB)
    assert vocabulary.tolist() == sorted(set(vocabulary.tolist())) and len(vocabulary) == 32
