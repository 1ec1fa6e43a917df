"""The test of validation/distribution.py on a tiny model, faults included."""

from pathlib import Path

import pytest

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.speculative.sampling import Sampling
from tests.support.runners import build_runner
from tests.support.tiny_models import TinyWords, save_tiny
from validation.distribution import DOUBLED, LENIENT, LawTest, run
from validation.matrix_engines import BLOCK_SIZE

BLOCKS = 512


@pytest.mark.parametrize(
    ("sampling", "fault"),
    [
        (Sampling(temperature=0.8, top_k=6), LENIENT),
        # Three tokens alone, so that neighbouring positions compete for the same noise.
        (Sampling(logit_bias=tuple((token, 30.0) for token in range(4, 7))), DOUBLED),
    ],
    ids=["lenient", "doubled"],
)
def test_tokens_and_pairs_of_the_engine_follow_the_model_and_a_fault_is_noticed(
    tmp_path: Path, sampling: Sampling, fault: str
) -> None:
    save_tiny(tmp_path, "llama", seed=3)
    options = ModelOptions(
        source=str(tmp_path),
        dtype="fp32",
        block_count=BLOCKS,
        block_size=BLOCK_SIZE,
        successor_count=16,
        threads=1,
    )
    prompt = tuple(range(3, 20))
    test = LawTest(build_runner(options), TinyWords(), prompt, sampling, BLOCKS)
    run(test, 1000, (fault,))
