"""Models that read pictures answer as Transformers' own do, by any schedule."""

import json
from functools import cache
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import torch

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.pictures.picture_rows import PictureRowOptions
from draftwerk.pictures.placeholders import placeholders
from draftwerk.pictures.tower import Tower, opened
from draftwerk.pictures.tower_messages import PictureWork, TowerOptions
from draftwerk.pictures.whole_pictures import cut_picture
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN
from draftwerk.speculative.rounds import NO_DRAFT, Draft
from draftwerk.speculative.rounds import chain as chained
from draftwerk.speculative.sampling import Sampling
from tests.support.model_driver import Driver, Live
from tests.support.tiny_pictures import (
    FAMILIES,
    kinds,
    picture,
    pictured_driver,
    pixels,
    save_pictured,
)

PICTURES = [picture(1), picture(2, (64, 40), "JPEG")]
DIGESTS = ["0123456789ab" + "0" * 20, "ba9876543210" + "1" * 20]
COUNT = 16


class Oracle(NamedTuple):
    """A family's model, and a prompt with two pictures as it and as ours have it."""

    directory: Path
    rows: Path
    picture_id: int
    is_mutual: bool
    prompt: list[int]
    plain: list[int]
    tokens: list[int]
    logprobs: torch.Tensor
    """After the prompt, and after each of the tokens but the last."""


@cache
def oracle(family: str, home: Path) -> Oracle:
    directory, rows = home / family, home / f"{family}-rows"
    rows.mkdir()
    model = save_pictured(family, directory)
    tower = Tower(TowerOptions(str(directory), str(rows), 1))
    from draftwerk.model.text.tokenizer import TextTokenizer

    text = TextTokenizer(directory)
    picture_id = text.tokenizer.token_to_id(FAMILIES[family].tokens[0])
    assert picture_id is not None
    prompt, plain = text.encode("<s>Which"), text.encode("<s>Which")
    for digest, data in zip(DIGESTS, PICTURES, strict=True):
        read = tower.read(PictureWork(digest, data))
        own = text.encode_continuation(read.text)
        numbers = placeholders(digest, read.rows)
        prompt += [next(numbers) if token == picture_id else token for token in own]
        plain += own
        behind = text.encode_continuation(" of the quick brown ones?")
        prompt, plain = prompt + behind, plain + behind
    images = [opened(data) for data in PICTURES]
    inputs = pixels(tower, images)
    with torch.no_grad():
        found, logits = list(plain), torch.empty(0)
        for _ in range(COUNT):
            more = {**inputs, **kinds(tower, found)}
            logits = model(input_ids=torch.tensor([found]), **more).logits[0]
            found.append(int(logits[-1].argmax()))
        logprobs = logits[len(plain) - 1 :].double().log_softmax(-1)
    own = directory, rows, picture_id, tower.family.is_mutual
    return Oracle(*own, prompt, plain, found[len(plain) :], logprobs)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")


def driver(found: Oracle, attention: str, dtype: str = "fp32", **more: Any) -> Driver:
    own = PictureRowOptions(str(found.rows), found.picture_id, found.is_mutual)
    if found.is_mutual:
        more["end_of"] = lambda tokens, stop: cut_picture(tokens, stop)[1]
    options = {"dtype": dtype, "attention": attention}
    return pictured_driver(found.directory, own, options, **more)


def greedy(**more: Any) -> Sampling:
    return Sampling(temperature=0.0, **more)


@pytest.mark.parametrize("attention", ["native", "padded"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_texts_are_those_of_transformers(
    family: str, attention: str, home: Path
) -> None:
    found = oracle(family, home)
    engine = driver(found, attention)
    live = engine.add(1, found.prompt, greedy(logprobs=5), COUNT)
    engine.run()
    assert live.output == found.tokens
    told = chain.from_iterable(decision.logprobs for decision in live.decisions)
    for wanted, one in zip(found.logprobs, told, strict=True):
        for token, logprob in one.top:
            assert logprob == pytest.approx(float(wanted[token]), abs=1e-4)


def guesses(found: Oracle, rng: Random) -> Any:
    """Return what drafts the right text, and wrong tokens in it."""

    def guess(live: Live, capacity: int) -> Draft:
        ahead = found.tokens[len(live.output) :][: min(capacity, rng.randint(0, 5))]
        wrong = [token if rng.random() < 0.8 else rng.randrange(90) for token in ahead]
        return chained(tuple(wrong), "guess") if wrong else NO_DRAFT

    return guess


@pytest.mark.parametrize("family", FAMILIES)
def test_no_schedule_or_draft_changes_a_text(family: str, home: Path) -> None:
    found, rng = oracle(family, home), Random(3)
    engine = driver(
        found, "native", chunk_max=7, preempts=0.15, guess=guesses(found, rng), rng=Random(4)
    )
    lives = [engine.add(number, found.prompt, greedy(), COUNT) for number in range(3)]
    lone = engine.add(9, found.plain, greedy(), COUNT)
    engine.run()
    assert engine.drafted
    assert [live.output for live in lives] == [found.tokens] * 3
    assert lone.output != found.tokens, "names of pictures alone say as much as the pictures"


def test_a_family_without_the_sections_of_its_positions_is_refused(tmp_path: Path) -> None:
    save_pictured("qwen3_vl", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["text_config"]["rope_parameters"]["mrope_section"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refused, match="mrope_section None"):
        Tower(TowerOptions(str(tmp_path), str(tmp_path), 1))


def test_a_row_that_cuts_a_picture_whose_rows_see_each_other_fails(home: Path) -> None:
    found = oracle("gemma3", home)
    first = next(at for at, token in enumerate(found.prompt) if token >= PLACEHOLDER_MIN)
    engine = driver(found, "native")
    engine.add(1, found.prompt, greedy(), 2)
    engine.end_of = lambda tokens, stop: first + 2
    with pytest.raises(AssertionError, match="block"):
        engine.run()
