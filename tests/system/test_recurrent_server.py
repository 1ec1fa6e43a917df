"""A served model with recurrent layers: turns read what is new, and kills change no text."""

from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from draftwerk import LLM, SamplingParams
from draftwerk.model.checkpoint.mtp_layer import read_mtp
from tests.support.killed_target import check_kills, tokens_of
from tests.support.mtp_models import MtpOracle
from tests.support.tiny_models import copy_text, save_tiny_with_text, text_sizes
from tests.system.store.test_kv_store import damage

PARAMS = SamplingParams(max_tokens=80, temperature=0.0, ignore_eos=True)
LONG = replace(PARAMS, max_tokens=400)
PROMPTS = [[17 * n + 3 * i + 100 for i in range(20 + 9 * n)] for n in range(6)]


@pytest.fixture(
    scope="module",
    params=[
        "qwen3_5_text with an MTP layer",
        pytest.param("granitemoehybrid", marks=pytest.mark.grid),
    ],
)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("recurrent")
    family, _, drafter = request.param.partition(" ")
    if drafter:
        MtpOracle(found, family, 3, **text_sizes()).make_right(0.03)
        copy_text(found)
    else:
        save_tiny_with_text(found, 3, family)
    return found


@pytest.fixture(scope="module")
def llm(path: Path) -> Generator[LLM]:
    with LLM(str(path), dtype="bf16", kv_memory="64MiB", draft_head=head_of(path)) as made:
        yield made


def head_of(path: Path) -> str:
    """Return the draft head that a model of `path` is to be served with."""
    return "auto" if read_mtp(path) is None else "mtp"


def test_drafts_change_no_text(llm: LLM) -> None:
    for temperature in (0.0, 1.0):
        params = replace(PARAMS, temperature=temperature, seed=5)
        drafted = tokens_of(llm.batch(PROMPTS, [params] * len(PROMPTS)))
        off = replace(params, speculation="off", cache_salt="off")
        assert tokens_of([llm.generate(prompt, off) for prompt in PROMPTS]) == drafted


@pytest.mark.parametrize(("turns", "width"), [(10, 1), (4, 3)])
def test_each_turn_of_a_conversation_reads_what_is_new(llm: LLM, turns: int, width: int) -> None:
    short = replace(PARAMS, max_tokens=24, beam_width=width)
    conversation = list(range(300 + width, 340 + width))
    for turn in range(turns):
        before = llm.snapshot().counts
        found = llm.generate(conversation, short)
        counts = llm.snapshot().counts
        read = counts.prompt_tokens - before.prompt_tokens
        read -= counts.prefix_hits - before.prefix_hits
        # All that is new, and the last block of before, which was not full.
        assert read <= (30 + 16 if turn else len(conversation))
        salted = replace(short, cache_salt=str(turn))
        assert tokens_of([llm.generate(conversation, salted)]) == tokens_of([found])
        conversation += [*tokens_of([found])[0], *range(400 + turn, 430 + turn)]


def test_a_restart_goes_on_from_what_was_kept_and_damage_is_a_miss(
    llm: LLM, path: Path, tmp_path: Path
) -> None:
    plain = tokens_of([llm.generate(prompt, PARAMS) for prompt in PROMPTS])

    def answers() -> tuple[int, float]:
        """Return how many tokens were found, and how many records refused."""
        with LLM(
            str(path),
            dtype="bf16",
            kv_memory="64MiB",
            kv_store=tmp_path,
            spare="off",
            draft_head=head_of(path),
        ) as made:
            found = [made.generate(prompt, PARAMS) for prompt in PROMPTS]
            assert tokens_of(found) == plain
            details = [each.usage.prompt_tokens_details for each in found]
            store = made.snapshot().store
        return sum(each.cached_tokens for each in details if each), store["refused"]

    assert answers() == (0, 0)
    blocks = sum((len(prompt) - 1) // 16 * 16 for prompt in PROMPTS)
    assert answers() == (blocks, 0)
    records = [*tmp_path.rglob("*.kv")]
    sizes = {each.stat().st_size for each in records}
    assert len(sizes) == 2, "blocks and states"
    damage([each for each in records if each.stat().st_size == max(sizes)])
    found, refused = answers()
    assert found < blocks and refused > 0


@pytest.mark.grid
def test_a_killed_model_process_changes_no_text(llm: LLM) -> None:
    """In the gate test_model_faults ends processes under states, and test_kills real ones."""
    beams = replace(LONG, beam_width=3, max_tokens=120)
    asked = [beams if number % 3 == 1 else LONG for number in range(len(PROMPTS))]
    plain = tokens_of([llm.generate(*each) for each in zip(PROMPTS, asked, strict=True)])
    check_kills(llm, lambda: llm.batch(PROMPTS, asked), plain)
