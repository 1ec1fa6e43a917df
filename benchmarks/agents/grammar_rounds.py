"""What a grammar costs a round: `python -m benchmarks.agents.grammar_rounds [--rows 1,8]`.

The default model's runner decodes sequences with a grammar and the same ones without, round by
round in turns, so that a busy machine slows both alike. Shown are milliseconds a round (medians),
what a grammar adds to the round before it (also a median), and what the parts of that take. With
drafts, each row has some tokens of the text to verify, all of them right. The first two grammars
allow what the model writes anyway, and the texts must be equal; under the others the text is JSON,
and the rows without a grammar are fed its tokens.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

from benchmarks.agents.agents import tools
from benchmarks.agents.grammar import PERSON
from benchmarks.support.runners import build_runner
from draftwerk.model.process.build import ModelOptions
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.text.grammar import Matcher
from draftwerk.model.text.own_tools import OWN_FORMATS
from draftwerk.speculative.protocol.rounds import (
    NO_DRAFT,
    Draft,
    NewSequence,
    Proposal,
    Round,
    Row,
)
from draftwerk.speculative.replies.argument_schemas import parameters_of
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.replies.grammar import ReplyRules, ToolFunction, reply_grammar
from draftwerk.speculative.sampling.params import Grammar, Sampling

ROUNDS, PROMPT, BLOCK, STOP = 60, 64, 16, 2
ROOM = PROMPT + ROUNDS * 9
PARTS: tuple[str, ...] = ("allowed", "jump_forward", "extend")


def tools_grammar() -> Grammar:
    """Return the grammar of a reply that may call one of many tools."""
    functions = tuple(
        ToolFunction(each["function"]["name"], parameters_of(each["function"]["parameters"]))
        for each in tools()
    )
    return reply_grammar(
        ReplyRules(ReplyFormat(calls=OWN_FORMATS["hermes"].calls), "auto", functions)
    )


GRAMMARS = {
    "any text": Grammar("regex", "(?s:.*)"),
    "tools, auto": tools_grammar(),
    "any array": Grammar("json_schema", '{"type":"array","minItems":200}'),
    "people": Grammar(
        "json_schema", json.dumps({"type": "array", "items": PERSON, "minItems": 100})
    ),
}


@dataclass
class Lane:
    """One sequence, which goes on for ever."""

    number: int
    sampling: Sampling
    tokens: list[int]
    computed: int = 0
    sent: int = 0

    def row(self, draft_max: int) -> Row:
        """Return what of it is computed next."""
        blocks = tuple(
            range(self.number * (ROOM // BLOCK + 1), (self.number + 1) * (ROOM // BLOCK + 1))
        )
        opens = NewSequence(tuple(self.tokens), PROMPT, self.sampling)
        row = Row(
            sequence_id=self.number,
            start=self.computed,
            stop=len(self.tokens),
            samples=True,
            draft_max=draft_max,
            blocks=blocks,
            new_token_ids=tuple(self.tokens[self.sent :]) if self.sent else (),
            new_sequence=None if self.sent else opens,
        )
        self.sent = len(self.tokens)
        return row


@dataclass
class Lanes:
    """The rows of one kind: with a grammar, or without."""

    runner: TargetRunner
    lanes: list[Lane]
    ms: list[float] = field(default_factory=list[float])

    def step(self, drafts: list[list[int]], number: int) -> list[list[int]]:
        """Run a round; returns the tokens that each row chose."""
        rows = tuple(lane.row(len(draft)) for lane, draft in zip(self.lanes, drafts, strict=True))
        begun = perf_counter()
        verdict = self.runner.step(
            Proposal(Round(round_id=number, pipeline_slot=0, rows=rows), tuple(map(chain, drafts)))
        )
        self.ms.append((perf_counter() - begun) * 1e3)
        for decision in verdict.decisions:
            assert not decision.error, decision.error
        return [list(decision.tokens) for decision in verdict.decisions]

    def commit(self, chosen: list[list[int]]) -> None:
        """Go on by these tokens, of which all but the last are computed."""
        for lane, tokens in zip(self.lanes, chosen, strict=True):
            lane.tokens += tokens
            lane.computed = len(lane.tokens) - 1


def chain(tokens: list[int]) -> Draft:
    parents = tuple(range(-1, len(tokens) - 1))
    return Draft(tuple(tokens), parents, ("x",) * len(tokens)) if tokens else NO_DRAFT


def sampling(grammar: Grammar | None, seed: int) -> Sampling:
    """Return how both kinds choose; without the stop token, which only a grammar needs."""
    return Sampling(
        temperature=0.8,
        seed=seed,
        stop_token_ids=(STOP,),
        grammar=grammar,
        logit_bias=((STOP, -100.0),),
    )


def lanes(runner: TargetRunner, grammar: Grammar | None, rows: int, first: int) -> Lanes:
    """Return rows with a text each, in blocks of their own."""
    return Lanes(
        runner,
        [
            Lane(
                first + n,
                sampling(grammar, n),
                [100 + (n * 977 + k * 31) % 20_000 for k in range(PROMPT)],
            )
            for n in range(rows)
        ],
    )


def texts(
    runner: TargetRunner, grammar: Grammar, rows: int, first: int, length: int
) -> list[list[int]]:
    """Return what rows write under a grammar, token by token."""
    held = lanes(runner, grammar, rows, first)
    for number in range(length):
        held.commit(held.step([[]] * rows, number))
    return [lane.tokens[PROMPT:] for lane in held.lanes]


@dataclass
class GrammarCost:
    """Medians over the rounds."""

    without: float
    held: float
    adds: float
    parts: dict[str, float]


def measure(runner: TargetRunner, name: str, rows: int, drafted: int) -> GrammarCost:
    """Decode in turns with a grammar and without."""
    grammar = GRAMMARS[name]
    close(runner, 3 * rows)
    said = texts(runner, grammar, rows, 0, ROUNDS * (drafted + 1))
    plain, held = lanes(runner, None, rows, rows), lanes(runner, grammar, rows, 2 * rows)
    times: dict[str, list[float]] = {part: [] for part in PARTS}
    at = 0
    for number in range(ROUNDS):
        drafts = [text[at : at + drafted] for text in said]
        news = [text[at : at + drafted + 1] for text in said]
        free = plain.step(drafts, number)
        if name in ("any text", "tools, auto"):
            assert free == news, "the grammar changed a text"
        plain.commit(news)
        with timed(times):
            assert held.step(drafts, number) == news
        held.commit(news)
        at += drafted + 1
    pairs = list(zip(plain.ms[1:], held.ms[1:], strict=True))  # the first one reads the prompt
    return GrammarCost(
        median(one for one, _ in pairs),
        median(other for _, other in pairs),
        median(other / one - 1 for one, other in pairs),
        {part: median(each[1:]) for part, each in times.items()},
    )


def close(runner: TargetRunner, count: int) -> None:
    runner.cached_sequences.close(range(count))


@contextmanager
def timed(times: dict[str, list[float]]) -> Iterator[None]:
    """Add up what a round's calls of the matcher take, in milliseconds."""
    spent = dict.fromkeys(PARTS, 0.0)
    originals = {part: getattr(Matcher, part) for part in PARTS}

    def wrapped(part: str) -> object:
        def call(self: Matcher, *arguments: object) -> object:
            begun = perf_counter()
            found = originals[part](self, *arguments)
            spent[part] += (perf_counter() - begun) * 1e3
            return found

        return call

    for part in PARTS:
        setattr(Matcher, part, wrapped(part))
    try:
        yield
    finally:
        for part in PARTS:
            setattr(Matcher, part, originals[part])
            times[part].append(spent[part])


def main() -> None:
    """Read the options, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1,8", help="sequences at once, separated by commas")
    parser.add_argument("--drafted", default="0,4", help="drafted tokens a row, likewise")
    parser.add_argument("--only", action="append", choices=list(GRAMMARS), help="may be repeated")
    parser.add_argument("--dtype", default="bf16")
    given = parser.parse_args()
    rows, drafted = (
        [int(each) for each in text.split(",")] for text in (given.rows, given.drafted)
    )
    blocks = 3 * max(rows) * (ROOM // BLOCK + 1)
    built = build_runner(
        ModelOptions(dtype=given.dtype, block_count=blocks, block_size=BLOCK, measures=False)
    )
    runner = TargetRunner(built.parts, 8)
    print("| grammar | rows | drafted | ms a round without | with | adds | of which "
          + " | ".join(PARTS) + " ms |\n|" + "---|" * (6 + len(PARTS)))  # fmt: skip
    for name in given.only or GRAMMARS:
        for count in rows:
            for length in drafted:
                found = measure(runner, name, count, length)
                parts = " | ".join(f"{found.parts[part]:.3f}" for part in PARTS)
                print(
                    f"| {name} | {count} | {length} | {found.without:.2f} | {found.held:.2f} | "
                    f"{found.adds:+.1%} | {parts} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
