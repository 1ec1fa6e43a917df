"""Draft heads that are layers: what they propose, how often that is accepted, and the texts."""

from functools import partial
from typing import Any, cast

import pytest
import torch

from draftwerk.model.batch.batch import is_chain
from draftwerk.model.checkpoint.eagle_config import LAYER_IDS
from draftwerk.model.draft_head.tree import LEVELS
from draftwerk.model.step.layer_heads.mtp import VOCABULARY_MAX
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.rounds import NO_FEEDBACK, Draft
from draftwerk.speculative.row_parts.feedback import LOSS_NATS
from draftwerk.speculative.sampling import Sampling
from tests.support.assistant_models import HEAD as ASSISTANT
from tests.support.assistant_models import AssistantOracle
from tests.support.eagle_models import HEAD, LAYERS, EagleOracle
from tests.support.head_drafting import Drafting, accepted, chain_of, texts
from tests.support.model_driver import Driver, Live, generate
from tests.support.mtp_models import MtpOracle
from tests.support.runners import make_runner_with_layer, require_kernels
from tests.support.tiny_gguf import SIZES, save_gguf
from tests.support.tiny_models import VOCAB

PROMPT = [5, 6, 7, 8, 9, 5, 6, 11, 30, 2, 8, 71]
GREEDY, SAMPLED = Sampling(temperature=0.0), Sampling(temperature=1.0, seed=3)
FAMILIES = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
EAGLES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"norm_before_residual": True, "eagle_config": {LAYER_IDS: [0, 2, 5]}},
}
"""What the heads' configs say beside their layers, by the target's family."""
ASSISTANTS = {"gemma4": False, "gemma4, clusters": True}
"""Whether the assistant looks at some clusters of tokens alone."""
Oracle = MtpOracle | EagleOracle | AssistantOracle
NATIVE = [pytest.param(False, id="torch"), pytest.param(True, id="native")]


@pytest.fixture(scope="module", params=[*FAMILIES, *EAGLES, *ASSISTANTS])
def oracle(request, tmp_path_factory) -> Oracle:
    folder = tmp_path_factory.mktemp("oracle")
    if request.param in EAGLES:
        return EagleOracle(folder, request.param, **EAGLES[request.param])
    if request.param in ASSISTANTS:
        return AssistantOracle(folder, ASSISTANTS[request.param])
    return MtpOracle(folder, request.param)


@pytest.fixture(scope="module", params=[MtpOracle, EagleOracle, AssistantOracle])
def near(request, tmp_path_factory) -> Oracle:
    """Return a target whose layer is often right and often not."""
    made = request.param(tmp_path_factory.mktemp("near"))
    made.make_right(0.03)
    return made


def runner_of(oracle: Oracle, native: bool = False, dtype: str = "fp32") -> TargetRunner:
    if native:
        require_kernels()
    folder = oracle.path.parent
    own = {EagleOracle: HEAD, AssistantOracle: ASSISTANT}.get(type(oracle))
    head = "mtp" if own is None else str(folder / own)
    return make_runner_with_layer(folder, head, native, dtype)


@pytest.mark.parametrize(
    ("native", "chunk_max"), [(False, 100), (True, 4)], ids=["torch, whole", "native, chunks"]
)
def test_what_it_proposes_is_what_the_published_formula_does(oracle, native, chunk_max):
    driver = Driver(runner_of(oracle, native), guess=chain_of, chunk_max=chunk_max)
    live = driver.add(1, PROMPT, GREEDY, 14)
    driver.run()
    states, known, depths = oracle.states(live.tokens), len(PROMPT), set[int]()
    for decision in live.decisions:
        known += len(decision.tokens)
        text = live.tokens[:known]
        if not decision.feedback.head_tree or known > len(live.tokens):
            continue
        wanted = oracle.guesses(text, states[: known - 1], LEVELS)
        for depth, node in enumerate(decision.feedback.head_tree):
            best, logits = node.best[0], wanted[depth]
            depths.add(depth)
            if best != int(logits.argmax()):
                assert logits[best] > logits.max() - 2 * LOSS_NATS, (known, depth)
                break
    assert depths == set(range(LEVELS))


@pytest.mark.parametrize("native", NATIVE)
def test_as_much_is_accepted_as_in_a_plain_decoding_loop(near, native):
    driver = Driver(runner_of(near, native), guess=chain_of)
    live = driver.add(1, PROMPT, GREEDY, 60)
    driver.run()
    states, known, counts = near.states(live.tokens), len(PROMPT), list[tuple[int, int]]()
    before: tuple[int, ...] = ()
    for decision in live.decisions:
        wanted = accepted(before, live.tokens[known:])
        counts.append((len(decision.path), wanted))
        known += len(decision.tokens)
        count = len(decision.feedback.head_tree)
        guesses = near.guesses(live.tokens[:known], states[: known - 1], count) if count else []
        before = tuple(int(logits.argmax()) for logits in guesses)
    assert [found for found, _ in counts[:-1]] == [wanted for _, wanted in counts[:-1]]
    assert 0 < sum(found for found, _ in counts) < 50


def test_nothing_is_kept_of_a_text_that_it_is_not_told_of(near):
    runner, told, plain = runner_of(near), runner_of(near), list[Live]()
    windows = runner.parts.draft_head.windows

    def guess(live: Live, capacity: int) -> Draft:
        if windows is not None:
            windows.check(())
        return NO_FEEDBACK

    for driver in (Driver(runner, guess=guess), Driver(told)):
        plain.append(driver.add(1, PROMPT, SAMPLED, 12))
        driver.run()
    assert plain[0].output == plain[1].output


@pytest.mark.parametrize(
    ("sampling", "how"),
    [(SAMPLED, {}), (GREEDY, {"chunk_max": 5, "preempts": 0.08})],
    ids=["sampled, calm", "greedy, preempted"],
)
def test_drafts_change_no_text(near, sampling, how):
    drafting = Drafting(runner_of(near, native=True))
    drafted, _ = texts(drafting, sampling, **how)
    assert drafted == texts(runner_of(near, native=True), sampling)[0]
    assert not all(is_chain(draft) for draft, _ in drafting.drafts)
    assert 0.05 < drafting.acceptance < 0.95


@pytest.mark.parametrize(
    ("of", "dtype"),
    [
        (MtpOracle, "fp32"),
        (MtpOracle, "int4"),
        (partial(EagleOracle, guessed=VOCAB), "bf16"),
        (AssistantOracle, "int4"),
    ],
)
def test_a_layer_that_is_right_saves_rounds(tmp_path, of, dtype):
    oracle = of(tmp_path)
    oracle.make_right(0.0)
    drafting = Drafting(runner_of(oracle, True, dtype))
    drafted, rounds = texts(drafting, GREEDY)
    plain, rounds_without = texts(runner_of(oracle, True, dtype), GREEDY)
    assert drafted == plain
    assert drafting.acceptance > 0.9
    assert rounds_without > 1.3 * rounds


@pytest.mark.parametrize("native", NATIVE)
def test_tokens_beyond_those_that_an_mtp_layer_guesses_are_read(tmp_path, native):
    oracle = MtpOracle(tmp_path, vocab_size=VOCABULARY_MAX + 4000)
    oracle.make_right(0.0)
    drafting = Drafting(runner_of(oracle, native))
    driver = Driver(cast(TargetRunner, drafting))
    lives = [driver.add(n, [5, VOCABULARY_MAX + 900 * n], GREEDY, 24) for n in (1, 2, 3, 4)]
    driver.run()
    assert all(live.tokens[1] >= VOCABULARY_MAX for live in lives)
    assert drafting.acceptance > 0.7
    assert driver.rounds < 16


@pytest.mark.parametrize("kv_dtype", ["auto", "int8"])
def test_an_assistant_reads_pages_of_every_format_and_writes_none(tmp_path, kv_dtype):
    require_kernels()
    AssistantOracle(tmp_path).make_right(0.0)
    head = str(tmp_path / ASSISTANT)
    asked, off = (
        make_runner_with_layer(tmp_path, which, True, "bf16", kv_dtype) for which in (head, "off")
    )
    driver = Driver(asked)
    live = driver.add(1, PROMPT, GREEDY, 30)
    driver.run()
    assert generate(off, PROMPT, GREEDY, 30) == live.output
    guessed = [each.feedback.head_tree[0].best[0] for each in live.decisions[:-1]]
    assert guessed == live.output[1:]
    for found, wanted in (
        (asked.pages.keys, off.pages.keys),
        (asked.pages.values, off.pages.values),
    ):
        assert torch.equal(found.view(torch.int8), wanted.view(torch.int8))


@pytest.mark.usefixtures("no_tokenizer")
def test_a_head_drafts_for_a_file_whose_embedding_is_in_blocks(tmp_path):
    require_kernels()
    EagleOracle(tmp_path, sizes=SIZES)
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q8_0", num_hidden_layers=LAYERS)
    head = str(tmp_path / HEAD)
    drafting = Drafting(make_runner_with_layer(path, head, True, "stored"))
    drafted, _ = texts(drafting, SAMPLED)
    assert drafted == texts(make_runner_with_layer(path, "off", True, "stored"), SAMPLED)[0]
    assert any(draft.tokens for draft, _ in drafting.drafts)
