"""Options out of their bounds are refused by name, from whichever side they come."""

from math import inf, nan
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from draftwerk.actors.requests.checked_options import (
    OptionsError,
    check_options,
    converted_options,
)
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.request import Options, Speculation, Written
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.requests.pooling import PoolingParams
from draftwerk.speculative.requests.slo import Slo
from draftwerk.speculative.sampling import Grammar, Sampling

SAMPLING = Sampling(seed=2**64 - 1, logprobs=20, temperature=2.0, top_k=7, logit_bias=((3, -1.5),))
SOUND = (
    Options(sampling=SAMPLING, tokens_max=2**18, choices=16, stop=("a",) * 16),
    Options(sampling=Sampling(grammar=Grammar("regex", "a" * 10**5)), beam_width=16, choices=3),
    Options(sampling=Sampling(), forced_tokens=(1, 2, 3), first_choice=15, reply=ReplyFormat()),
    Options(sampling=Sampling(), pooling=PoolingParams("mean"), prompt_logprobs=20, priority=2**31),
    Options(sampling=Sampling(), blend=Blend(((0, 3), (3, 9))), slo=Slo(ttft=1e6)),
)
SAMPLING_FAULTS: dict[str, tuple[Any, ...]] = {
    "temperature": (-1.0, 2.5, nan, inf),
    "top_k": (-1, 2**31),
    "top_p": (-0.1, 1.5, nan),
    "min_p": (-0.1, 1.5, nan),
    "repetition_penalty": (0.0, -1.0, 11.0, nan),
    "presence_penalty": (-3.0, 3.0, inf),
    "frequency_penalty": (-3.0, 3.0, -inf),
    "logit_bias": (((-1, 1.0),), ((2**31, 1.0),), ((1, 101.0),), ((1, nan),), ((1, 1.0),) * 1025),
    "tokens_min": (-1, 2**18 + 1),
    "logprobs": (-2, 21, 10**6, 2**70),
    "logprob_token_ids": ((-1,), (2**31,), tuple(range(21))),
    "seed": (-1, 2**64),
    "branch": (-1,),
    "grammar": (Grammar("regex", "a" * (2**24 + 1)), Grammar("regex", "\ud800")),
}
FAULTS: dict[str, tuple[Any, ...]] = {
    "tokens_max": (-1, 2**18 + 1),
    "stop": (("a",) * 17, ("a",) * 20_000, ("",), ("a" * 257,), ("\ud800",)),
    "stop_token_ids": ((-1,), (2**31,), tuple(range(65))),
    "choices": (0, -1, 17, 10**6),
    "beam_width": (0, 17, 10**6),
    "length_penalty": (-11.0, 11.0, nan),
    "prompt_logprobs": (-2, 21),
    "scored_from": (-1,),
    "forced_tokens": ((-1,), (2**31,), (1,) * (2**18 + 1)),
    "written": (Written(tokens=(-1,)), Written(tokens=(2**31,))),
    "first_choice": (-1, 16, 2**62),
    "priority": (-1001, 2**32),
    "deadline_s": (-1.0, 86401.0, nan),
    "waited_s": (-1.0, nan),
    "cache_salt": ("a" * 2049,),
    "speculation": (
        Speculation(draft_max=65),
        Speculation(methods=("a",) * 17),
        Speculation(prediction="a" * (2**20 + 1)),
    ),
    "slo": (Slo(ttft=-1.0), Slo(tpot=nan)),
    "pooling": (PoolingParams(answers=(-1,)), PoolingParams(answers=(1,) * 65)),
    "blend": (Blend(((0, 3), (2, 5))), Blend(((3, 3),)), Blend((), ratio=2.0)),
}


@pytest.mark.parametrize("number", range(len(SOUND)))
def test_options_in_their_bounds_pass_and_come_back_as_they_were(number: int) -> None:
    check_options(SOUND[number])
    plain = msgspec.json.decode(msgspec.json.encode(SOUND[number]))
    assert converted_options(plain) == SOUND[number]


def test_every_field_that_a_client_decides_has_a_fault_here() -> None:
    free = {"sampling", "ignore_eos", "early_stopping", "shows_hypotheses", "echo", "reply"}
    names = set(Options.__struct_fields__) - free - {"tenant", "adapter"}
    assert names == set(FAULTS)
    assert set(Sampling.__struct_fields__) - {"stop_token_ids"} == set(SAMPLING_FAULTS)


WRITTEN = {"forced_tokens": "given"}
"""Fields that clients write by another name."""


@pytest.mark.parametrize("field", FAULTS)
def test_a_value_out_of_its_bounds_is_refused_by_name(field: str) -> None:
    for value in FAULTS[field]:
        with pytest.raises(OptionsError) as refused:
            check_options(replace(Options(sampling=Sampling()), **{field: value}))
        written = WRITTEN.get(field, field)
        assert refused.value.field.startswith(written) or refused.value.field == "options"


@pytest.mark.parametrize("field", SAMPLING_FAULTS)
def test_so_is_one_of_sampling(field: str) -> None:
    for value in SAMPLING_FAULTS[field]:
        with pytest.raises(OptionsError) as refused:
            check_options(Options(sampling=replace(Sampling(), **{field: value})))
        blamed = refused.value.field
        assert blamed.startswith(f"sampling.{field}") or blamed == "options"


def test_fields_that_contradict_one_another_are_refused() -> None:
    for field, fields in (
        ("choices", {"beam_width": 3, "choices": 4}),
        ("first_choice", {"choices": 2, "first_choice": 15}),
        ("given", {"choices": 2, "forced_tokens": (1,)}),
    ):
        with pytest.raises(OptionsError) as refused:
            check_options(replace(Options(sampling=Sampling()), **fields))
        assert refused.value.field == field


@pytest.mark.parametrize("given", [7, [], {}, {"sampling": 7}, {"sampling": {"top_p": "1"}}])
def test_plain_data_that_are_no_options_are_refused(given: Any) -> None:
    with pytest.raises(OptionsError):
        converted_options(given)
