"""Every family and form of state with every draft forced: the bits are those without any.

In crowds of tiny models the usual policy drafts next to nothing, so this one asks every source for
every row in each round, verifies all nodes, and puts wrong branches into each tree.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from draftwerk.speculative.drafting.proposer import Proposer
from tests.support.forced_families import (
    LIVES_STEPS,
    ROOMY,
    TIGHT,
    Branched,
    computed,
    family_of,
)
from tests.support.runners import require_kernels
from tests.support.sampled import in_gate
from tests.support.tiny_models import CASES, save_tiny

SAMPLED = (
    *("llama, grouped queries", "mistral, window", "gpt_oss", "gemma2", "qwen3_moe"),
    *("gemma4, keys that are values", "lfm2, a plane that is half full", "granite 4, biases"),
    *("qwen3.5, half of each head turns", "cohere2"),
)
"""One of each form of state, and of what a step has beside attention."""


@pytest.mark.parametrize("case", in_gate(CASES, SAMPLED))
async def test_forced_drafts_change_no_bit(
    case: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    require_kernels()
    family, changes = CASES[case]
    model = save_tiny(tmp_path, family, **changes)
    size = model.config.get_text_config().vocab_size
    roomy, tight = (family_of(tmp_path, size, count) for count in (ROOMY, TIGHT))
    requests = roomy.requests()
    async with roomy.engine(partial(Proposer, ()), beside=False, dies=False) as engine:
        expected = await computed(engine, requests, alone=True)
    branched = partial(Branched, size, len(case))
    for beside in (False, True):
        async with tight.engine(branched, beside, dies=not beside) as engine:
            for _ in range(2):  # the second time the prefix cache and the sources know the texts
                assert await computed(engine, requests, alone=False) == expected
            engine.check()
            counts = engine.snapshot().counts
            print(
                f"{case}{', two rounds' if beside else ''}: {counts.draft_tokens} drafted, "
                f"{counts.accepted_tokens} accepted, {counts.preemptions} preempted"
            )
            record_property("tokens drafted by force", counts.draft_tokens)
            record_property("of these accepted", counts.accepted_tokens)
            assert counts.draft_tokens > counts.accepted_tokens > 0
            assert tight.processes == (1 if beside else len(LIVES_STEPS))


def test_each_sample_is_a_case() -> None:
    assert set(SAMPLED) <= CASES.keys()
