"""A draft head trained on a tiny model's texts equals the network that is served."""

import pytest
import torch
from torch.nn.functional import kl_div

from draftwerk.model.checkpoint.loader import load
from draftwerk.model.draft_head.head import DraftHead, find
from draftwerk.model.draft_head.torch_step import TorchStep
from tests.support.tiny_models import VOCAB
from training.head import DEPTHS, PLACES, Course, Distance, Trained, finished, frequent, look
from training.saved_head import save


def texts() -> list[list[int]]:
    """Return sentences of a language in which each token follows from the one before."""
    return [[(start + 7 * n) % VOCAB for n in range(40)] for start in range(0, VOCAB, 2)]


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
def test_training_lowers_the_loss_and_the_saved_head_is_the_trained_one(directory, tmp_path):
    torch.manual_seed(1)
    target = load(str(directory), torch.float32)
    corpus = look(texts(), directory, torch.device("cpu"))
    vocabulary = frequent(texts(), 64, VOCAB)
    head = Trained(target.config.hidden_size, 64)
    weights = target.weights
    small = weights.lm_head[vocabulary]
    course = Course(corpus, weights.embedding.bfloat16(), small.bfloat16(), head, batch=256)
    rested: list[str] = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        before = float(course.marks(0)[0][0])
    course.learn(60, 1e-2, lambda: rested.append(course.evaluate()))
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
    corpus = look(texts(), directory, torch.device("cpu"))
    assert corpus.left[:41].tolist() == [*range(39, -1, -1), 39]
    assert len(corpus.tokens) == len(corpus.hidden) == len(corpus.left)
    vocabulary = frequent(texts(), 32, VOCAB)
    assert vocabulary.tolist() == sorted(set(vocabulary.tolist())) and len(vocabulary) == 32


def test_the_distance_and_its_gradient_are_those_of_the_whole_logits():
    torch.manual_seed(2)
    places, hidden, size = 2 * PLACES + 9, 16, 40
    small, head_tree = torch.randn(size, hidden), torch.randn(places, hidden)
    left = torch.cat([torch.arange(n - 1, -1, -1) for n in (3, PLACES, 1, places - PLACES - 4)])
    states = [torch.randn(places - n, hidden, requires_grad=True) for n in (1, 2, 3)]
    weights = torch.tensor([1.0, 0.7, 0.3])
    losses, shares = Distance.apply(small, head_tree, left, *states)
    (weights * losses).sum().backward()

    wanted = head_tree @ small.T
    plain: list[torch.Tensor] = []
    copies = [state.detach().clone().requires_grad_() for state in states]
    for depth, state in enumerate(copies, 1):
        counted = left[: len(state)] >= depth
        logits, asked = (state @ small.T)[counted], wanted[depth:][counted]
        plain.append(kl_div(logits.log_softmax(-1), asked.softmax(-1), reduction="batchmean"))
        same = (logits.argmax(-1) == asked.argmax(-1)).float().mean()
        assert float(shares[depth - 1]) == pytest.approx(float(same))
    (weights * torch.stack(plain)).sum().backward()
    assert losses.tolist() == pytest.approx([one.item() for one in plain], rel=1e-5)
    for one, other in zip(states, copies, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-8)


def test_a_head_that_grew_computes_what_it_did_before():
    torch.manual_seed(3)
    small = Trained(16, 8)
    values = {name: value.detach() for name, value in small.named_parameters()}
    grown = Trained(16, 20)
    grown.take(DraftHead(vocabulary=torch.arange(4), **values))
    states, embedded = torch.randn(5, 16), torch.randn(5, 16)
    torch.testing.assert_close(grown(states, embedded), small(states, embedded))
