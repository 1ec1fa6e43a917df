"""Random schemas of tools: every call that is whole keeps to its schema, drafted or not.

    python -m validation.call_schemas [--count 500] [--seed 0] [--tokens 300]

Each schema is that of a function which must be called, in a format of calls drawn by lot; the model
is tiny and random, so what is right about its arguments is the grammar's doing. Each reply is made
without speculation, and with every draft source and part of the plain reply as the prediction: both
must be equal. Each reply's text, cut into random pieces, must be read as it is whole.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import perf_counter

import anyio

from draftwerk.actors.engine import Engine
from draftwerk.model.text.templates.own_tools import OWN_FORMATS
from draftwerk.speculative.replies.argument_schemas import (
    BadSchema,
    ToolFunction,
    parameters_of,
    raw_strings,
)
from draftwerk.speculative.replies.formats import ArgumentFormat, CallFormat, ReplyFormat
from draftwerk.speculative.replies.grammar import ReplyRules, reply_grammar
from draftwerk.speculative.replies.parser import ReplyParser, ReplyPart, joined_parts
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling
from tests.support.tiny_models import save_tiny_with_text
from validation.random_schemas import Schema, arrays, objects
from validation.schemas import SchemaOutcome, altered, command, decoded, fault, run, show

FORMATS = {
    "json": OWN_FORMATS["hermes"].calls,
    "xml": CallFormat(
        "xml",
        "<tool_call>",
        "<tool_call>\n<function=",
        ">\n",
        "</function>\n</tool_call>",
        "\n<tool_call>\n<function=",
        arguments=ArgumentFormat("<parameter=", ">\n", "\n</parameter>\n"),
    ),
}


def arguments_schema(rng: Random) -> Schema:
    """Return the schema of a function's arguments; references are within."""
    defs: Schema = {}
    found = objects(rng, 0, defs)
    if rng.random() < 0.2:
        found["properties"]["list"] = arrays(rng, 1, defs)
    return found | {"$defs": defs} if defs else found


def parsed(form: ReplyFormat, pieces: Sequence[str]) -> tuple[ReplyPart, ...]:
    """Return the parts of a reply in pieces."""
    parser = ReplyParser(form)
    return tuple(
        joined_parts([*(p for each in pieces for p in parser.push(each)), *parser.flush()])
    )


def pieces(rng: Random, text: str) -> list[str]:
    """Return a text cut anywhere."""
    cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(20)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


async def compare(one: Engine, outcome: SchemaOutcome, number: int, seed: int, tokens: int) -> None:
    """Call a function of one schema, plainly and speculatively."""
    rng = Random(f"calls {seed} {number}")
    schema = arguments_schema(rng)
    calls = FORMATS[rng.choice(list(FORMATS))]
    outcome.count += 1
    try:
        functions = (ToolFunction("it", parameters_of(schema)),)
        form = ReplyFormat(calls=calls, raw_strings=raw_strings(calls, functions))
        grammar = reply_grammar(ReplyRules(form, "required", functions, parallel=False))
        sampling = Sampling(temperature=rng.choice([0.0, 0.7, 1.0]), seed=number, grammar=grammar)
        plainly = Options(
            sampling=sampling,
            tokens_max=tokens,
            reply=form,
            speculation=Speculation(enabled=False),
        )
        first = await decoded(one, plainly, "Call it.", f"{number} plain")
        drafted = Options(
            sampling=sampling,
            tokens_max=tokens,
            reply=form,
            speculation=Speculation(prediction=altered(rng, first.text)),
        )
        second = await decoded(one, drafted, "Call it.", f"{number} drafted")
    except BadSchema as error:
        outcome.refused.append(f"{error}: {json.dumps(schema)}")
        return
    cut = parsed(form, pieces(rng, first.text))
    if first != second or not cut == parsed(form, [first.text]) == first.parts:
        outcome.different.append(f"{first} is not {second} or {cut}: {json.dumps(schema)}")
    kinds = [each.kind for each in first.parts]
    if kinds == ["call", "arguments", "end"]:
        outcome.finished += 1
        if problem := fault(schema, first.parts[1].text):
            outcome.invalid.append(f"{problem}: {first.parts[1].text}: {json.dumps(schema)}")
    elif first.finish_reason != "length":
        outcome.invalid.append(f"ended without a call: {first}")


def main() -> None:
    """Take as many schemas as asked, print what came of them, and fail if anything is wrong."""
    given = command(__doc__, tokens=300).parse_args()
    begun = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        save_tiny_with_text(Path(folder))
        numbers = range(given.count)
        outcome = anyio.run(run, folder, numbers, given.seed, given.tokens, compare)
    show(outcome, begun)
    outcome.check(refused_max=0.2, finished_min=0.7)


if __name__ == "__main__":
    main()
