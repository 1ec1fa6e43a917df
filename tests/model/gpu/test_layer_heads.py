"""Draft heads that are layers, beside a target on the device: what they do beside one on a CPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftwerk.model.step.backend import TORCH_BACKEND
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.speculative.sampling import Sampling
from tests.model.gpu.test_families import device_runner
from tests.support import assistant_models, dflash_models, eagle_models
from tests.support.assistant_models import AssistantOracle
from tests.support.dflash_models import DFlashOracle
from tests.support.eagle_models import EagleOracle
from tests.support.head_drafting import Drafting, texts
from tests.support.mtp_models import MtpOracle
from tests.support.runners import make_runner_with_layer
from tests.support.sampled import in_gate

pytest.importorskip("triton", reason="Triton is not installed")

GREEDY = Sampling(temperature=0.0)


def second(directory: Path) -> DFlashOracle:
    return DFlashOracle(directory, second=dflash_models.SECOND)


HEADS = {
    MtpOracle: "mtp",
    EagleOracle: eagle_models.HEAD,
    AssistantOracle: assistant_models.HEAD,
    DFlashOracle: dflash_models.HEAD,
    second: dflash_models.HEAD,
}

EXACT = {"exact": True, "kv_dtype": "fp8"}


@pytest.mark.parametrize("changes", [{}, pytest.param(EXACT, marks=pytest.mark.grid)])
@pytest.mark.parametrize("oracle", in_gate(HEADS, (EagleOracle, DFlashOracle)))
def test_texts_and_drafts_are_those_beside_a_cpu(
    oracle: Any, changes: dict[str, Any], tmp_path: Path
):
    oracle(tmp_path).make_right(0.03)
    head = "mtp" if oracle is MtpOracle else str(tmp_path / HEADS[oracle])

    def device() -> Any:
        parts = device_runner(tmp_path, "tiled", draft_head=head, **changes).parts
        return target_runner(replace(parts, backend=TORCH_BACKEND))  # kernels choose elsewhere

    drafting = Drafting(device())
    drafted, rounds = texts(drafting, GREEDY)
    plain, _ = texts(device(), GREEDY)
    assert drafted == plain
    assert 0.05 < drafting.acceptance < 0.98
    if not changes:
        beside = Drafting(make_runner_with_layer(tmp_path, head, native=False, dtype="fp32"))
        assert texts(beside, GREEDY) == (drafted, rounds)
        assert beside.drafts == drafting.drafts
