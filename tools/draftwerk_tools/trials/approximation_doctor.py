"""`draftwerk doctor --approximate NAME [PROMPTS.jsonl]`: measures what an approximation changes.

Each line of the file is {"prompt": text} or {"messages": [...]}; without a file the prompts are
pieces of the text that the needles are hidden in, which comes with Python.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import TypeVar

import msgspec

from draftwerk.assembly.approximation_tables import keep_quality
from draftwerk.assembly.loading.model_infos import read_infos, read_text
from draftwerk.assembly.plan import plan
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.build import build
from draftwerk.model.process.built import Built
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.settings.approximation_quality import ApproximationQuality, NeedleScore, StepTime
from draftwerk.settings.approximations import NAMES
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from draftwerk_tools.trials.approximation_trial import ApproximationTrial, Needle
from draftwerk_tools.trials.blend_trial import BlendTrial
from draftwerk_tools.trials.format_difference import summary

ANSWER = 64
PROMPTS = 8
"""Without a file."""
NEEDLE_TOKENS = 2048
"""The tokens of a prompt without a file, and of a text with a needle in it."""
KEYS = ("48172", "90356", "27481", "63905", "15738", "80264", "39517", "72640")
"""The keys that are hidden, each a little further on in the text."""
ROWS = (1, 4, 16)
T = TypeVar("T")


class PromptLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the file."""

    prompt: str = ""
    messages: tuple[dict[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not (self.messages or self.prompt):
            raise ValueError("it has neither `prompt` nor `messages`")


def show_approximations(
    settings: EngineSettings, path: Path | None, needle_tokens: Sequence[int]
) -> int:
    """Print how far texts with the settings' approximations are from exact ones, and keep it."""
    if not settings.approximations:
        raise ConfigError("--approximate: name what is to be measured")
    info, _ = read_infos(settings, print)
    text = read_text(info, settings.tool_format, settings.control_tokens)
    haystack = text.encode(" ".join(topics.values()))
    prompts = list(own_prompts(haystack))
    if path is not None:
        prompts = [_tokens(text, line) for line in read_lines(path, PromptLine)]
    exact = exact_ones(settings)
    longest = max(*map(len, prompts), *needle_tokens) + ANSWER
    context_max = read_infos(exact, print)[0].context_max
    if longest >= context_max:
        raise ConfigError(f"--approximate: {longest} tokens are more than the context has")
    trial = ApproximationTrial(*(_trial(each, longest) for each in (exact, settings)))
    quality = measured(trial, text, haystack, prompts, needle_tokens)
    print(f"{', '.join(map(str, settings.approximations))} on {info.name}")
    print("\n".join(quality.lines()))
    dtype = plan(settings, info, None).dtype
    keep_quality(Path(info.directory), dtype, settings.approximations, quality)
    return 0


def exact_ones(settings: EngineSettings) -> EngineSettings:
    """Return the settings without their approximations."""
    named = [NAMES[each.name].sets for each in settings.approximations]
    plain = {each[0]: "auto" for each in named if each is not None}
    return msgspec.structs.replace(settings, approximate=(), **plain)


def _trial(settings: EngineSettings, longest: int) -> BlendTrial:
    """Return a model over pages for as many texts as its steps have rows."""
    options = plan(settings, read_infos(settings, print)[0], None).target_options
    needed = (ROWS[-1] + 1) * (longest // options.block_size + 2)
    options = msgspec.structs.replace(
        options,
        measures=False,
        block_count=min(options.block_count, needed),
        window_blocks=0,
    )
    return BlendTrial(target_runner(built_model(options).parts))


def built_model(options: ModelOptions) -> Built:
    """Return a model in this process. Raises ConfigError."""
    try:
        return build(options, print)
    except Refused as error:
        raise ConfigError(str(error)) from None


def measured(
    trial: ApproximationTrial,
    text: TextTokenizer,
    haystack: Sequence[int],
    prompts: Sequence[Sequence[int]],
    needle_tokens: Sequence[int],
) -> ApproximationQuality:
    """Return what two models differ in."""
    longest = max(map(len, prompts))
    found = list(trial.compare(prompts, ANSWER))
    together = summary(found)
    exact_bytes, token_bytes = trial.token_bytes
    return ApproximationQuality(
        prompts=len(prompts),
        prompt_tokens=longest,
        places=sum(len(each.kl) for each in found),
        kl_mean=together.kl_mean,
        kl_p99=together.kl_p99,
        same_best=together.same,
        parts_after=together.parts_after,
        answer_tokens=ANSWER,
        needles=tuple(_score(trial, text, haystack, tokens) for tokens in needle_tokens),
        token_bytes=token_bytes,
        exact_token_bytes=exact_bytes,
        steps=tuple(StepTime(rows, *trial.step_ms(rows, longest)) for rows in ROWS),
    )


def own_prompts(haystack: Sequence[int]) -> Iterator[list[int]]:
    """Yield pieces of a long text."""
    apart = len(haystack) // PROMPTS
    for number in range(PROMPTS):
        start = number * apart
        yield list(haystack[start : start + NEEDLE_TOKENS - 2 * ANSWER])


def read_lines(path: Path, kind: type[T]) -> list[T]:
    """Return a file's lines. Raises ConfigError that names the first bad one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--approximate: {error}") from None
    lines = [line for line in content.splitlines() if line.strip()]
    if not lines:
        raise ConfigError(f"--approximate: {path} has no prompts")
    found: list[T] = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(msgspec.json.decode(line, type=kind))
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(f"--approximate: {path}, prompt {number}: {error}") from None
    return found


def _tokens(text: TextTokenizer, line: PromptLine) -> list[int]:
    if line.messages:
        return text.encode_continuation(text.render_chat(line.messages))
    return text.encode(line.prompt)


def _score(
    trial: ApproximationTrial, text: TextTokenizer, haystack: Sequence[int], tokens: int
) -> NeedleScore:
    needles = [needle_of(text, haystack, tokens, number) for number in range(len(KEYS))]
    exact, found = trial.find(needles)
    return NeedleScore(tokens, exact, found, len(needles))


def needle_of(text: TextTokenizer, haystack: Sequence[int], tokens: int, number: int) -> Needle:
    """Return a text of so many tokens with a number hidden in it, which its end asks for."""
    key = KEYS[number]
    answer = text.encode(f" {key}")
    hidden = text.encode(f"\n\nThe pass key is {key}. Remember it. {key} is the pass key.\n\n")
    asked = text.encode("\n\nWhat is the pass key? The pass key is")
    room = tokens - len(hidden) - len(asked) - len(answer)
    at = room * number // len(KEYS)
    return Needle([*haystack[:at], *hidden, *haystack[at:room], *asked], answer)
