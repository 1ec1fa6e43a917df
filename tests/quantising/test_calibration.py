"""Methods of `draftwerk quantise`: on a model with planted outliers each at least halves the KL."""

from functools import cache
from pathlib import Path

import pytest

from draftwerk.actors.engine import running
from draftwerk.actors.pipeline import EngineParts
from draftwerk.model.checkpoint.hub import Location, locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.pool import Pool
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling
from draftwerk_tools.quantising import calibration
from draftwerk_tools.quantising.calibration import CalibrationTexts, prompts_of, texts_of
from draftwerk_tools.quantising.methods.method_table import method_named
from draftwerk_tools.quantising.quantise import loaded, paged, write
from draftwerk_tools.quantising.sources import open_source
from draftwerk_tools.trials.format_difference import DistanceSummary, difference, own_texts
from tests.support.engine_texts import texts_of as engine_texts
from tests.support.planted_outliers import save_planted
from tests.support.runners import build_runner
from tests.support.thread_device import ThreadDevice
from validation.forced_drafts import Everything

TEXTS = CalibrationTexts(16, 48)
MEASURED = 32
"""Tokens of each text by which files are compared."""


class Planted:
    """The model, and files of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        save_planted(folder / "source")
        self.location: Location = locate(str(folder / "source"))
        self.pool = Pool()
        prompts = [each[:24] for each in prompts_of(TextTokenizer(self.location.directory))]
        self.size = len(prompts), 24 + MEASURED
        self.exact = self.model(str(self.location.directory), "fp32")
        self.texts = own_texts(self.exact, prompts, MEASURED)
        self.file = cache(self.written)
        self.kl = cache(self.measured)

    def model(self, path: str, dtype: str):
        return paged(loaded(path, dtype, lambda _: None), dtype, self.pool, *self.size)

    def written(self, kind: str, name: str, again: str = "") -> Path:
        output = self.folder / f"{kind}-{name}{again}.gguf"
        source, method = open_source(self.location), method_named(name)
        write(self.location, source, kind, output, method, TEXTS, lambda _: None)
        return output

    def measured(self, kind: str, name: str) -> DistanceSummary:
        served = self.model(str(self.file(kind, name)), "stored")
        return difference(self.exact, served, self.texts)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Q8_0", "smoothquant"),
        ("Q4_1", "awq"),
        ("Q4_1", "gptq"),
        ("Q4_1", "awq+gptq"),
    ],
)
def test_a_method_halves_the_divergence_where_it_is_meant_to(
    planted: Planted, kind: str, name: str
):
    plain, found = planted.kl(kind, "none"), planted.kl(kind, name)
    assert found.kl_mean < plain.kl_mean / 2
    assert found.same > plain.same


def test_the_same_file_comes_again(planted: Planted):
    first, again = planted.file("Q4_1", "awq+gptq"), planted.written("Q4_1", "awq+gptq", "-again")
    assert first.read_bytes() == again.read_bytes()
    assert first.read_bytes() != planted.file("Q4_1", "none").read_bytes()


def test_a_file_says_by_what_it_was_made(planted: Planted):
    said = ", as in the file, by awq+gptq, 16 texts of 48 tokens"
    made = read_info(locate(str(planted.file("Q4_1", "awq+gptq"))))
    assert made.stored_text.endswith(said) and made.file_format == "Q4_1"
    plain = read_info(locate(str(planted.file("Q4_1", "none"))))
    assert plain.stored_text.endswith(", as in the file")
    assert open_source(locate(str(planted.file("Q4_1", "awq+gptq")))).kinds == ("Q4_1", "Q8_0")


async def test_drafts_change_no_text(planted: Planted):
    path = planted.file("Q4_1", "awq+gptq")
    options = ModelOptions(source=str(path), dtype="stored", block_count=128, block_size=16)
    runner, card = build_runner(options), read_info(locate(str(path)))
    parts = EngineParts(
        text=TextTokenizer(Path(card.directory)),
        target=lambda: ThreadDevice(target_runner(runner.parts, 16).step),
        block_count=128,
        block_size=16,
        context_max=card.context_max,
        stop_token_ids=(),
        options=all_options(expects_lengths=False),
        proposer=lambda: Proposer(("ngram", "recycle"), policy=Everything),
    )
    async with running(parts) as engine:

        def request(number: int, drafts: bool) -> tuple[tuple[int, ...], Options]:
            sampling = Sampling(temperature=0.2, top_p=1.0, seed=number)
            speculation = Speculation(enabled=drafts)
            prompt = tuple(planted.texts[number].tokens[:12]) * 2
            return prompt, Options(sampling=sampling, tokens_max=24, speculation=speculation)

        plain = await engine_texts(engine, lambda number: request(number, False), 4)
        assert await engine_texts(engine, lambda number: request(number, True), 4) == plain
        assert engine.snapshot().counts.draft_tokens > 0


def test_texts_are_given_with_a_method_alone():
    awq = method_named("awq")
    assert texts_of(awq, None, None) == CalibrationTexts()
    assert texts_of(awq, 3, 9) == CalibrationTexts(3, 9)
    with pytest.raises(Refused, match="texts 0, text-tokens 9: a method sees some"):
        texts_of(awq, 0, 9)
    with pytest.raises(Refused, match="texts and text-tokens are what a --method sees"):
        texts_of(None, 3, None)


def test_without_kernels_no_method(planted: Planted, monkeypatch: pytest.MonkeyPatch):
    def unavailable(**_: object) -> None:
        raise NativeUnavailable("no compiler")

    monkeypatch.setattr(calibration, "obtain", unavailable)
    with pytest.raises(Refused, match="by which the model writes its texts, cannot run here: no c"):
        planted.written("Q4_0", "gptq")
