"""Grammars: what may follow, wherever the text has been; and one bad grammar fails alone."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.reference.sampler import SamplingRequest, choose_many
from draftwerk.model.text.grammar import BadGrammar, Grammars, Matcher, grammars_of
from draftwerk.model.text.grammar_check import CheckerLost, GrammarChecker
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative import sampling as reference
from draftwerk.speculative.replies.schemas.reworded_schemas import reworded
from draftwerk.speculative.rounds import NewSequence
from draftwerk.speculative.sampling import Grammar, Sampling
from tests.support.model_driver import Driver, generate, trees_along
from tests.support.rounds import first_row, make_row, proposed
from tests.support.runners import make_drafter, make_runner
from tests.support.tiny_models import save_tiny, save_tiny_with_text
from tests.support.waiting import DEADLINE_S

END = 2
PERSON = Grammar(
    "json_schema",
    json.dumps(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 8},
                "tags": {"type": "array", "items": {"enum": ["red", "redder"]}, "maxItems": 3},
                "age": {"type": "integer", "minimum": 0, "maximum": 120},
            },
            "required": ["name", "age"],
            "additionalProperties": False,
        }
    ),
)
GRAMMARS = {
    "object": PERSON,
    "any object": Grammar("json_schema", '{"type":"object"}'),
    "regex": Grammar("regex", r"(foo|foobar|[a-z ]{3,30}x)+ the end"),
    "lark": Grammar("lark", 'start: t (("+"|"-") t)*\nt: /[0-9]+/ | "(" start ")"\n'),
    "no way back": Grammar("lark", 'start: a b\na[max_tokens=5]: /[a-z]+/\nb: "," /[0-9]{1,4}/\n'),
}
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0, stop_token_ids=(END,), grammar=PERSON),
    "plain": Sampling(seed=1, stop_token_ids=(END,), grammar=PERSON),
    "two stops": Sampling(seed=2, stop_token_ids=(0, END), grammar=GRAMMARS["lark"]),
    "edited": Sampling(
        seed=3,
        top_p=0.9,
        frequency_penalty=0.5,
        logit_bias=((END, 3.0), (33, -5.0)),
        stop_token_ids=(END,),
        grammar=GRAMMARS["regex"],
    ),
    "no way back": Sampling(seed=4, stop_token_ids=(END,), grammar=GRAMMARS["no way back"]),
}
PROMPT = [504, 3575, 282]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(path)
    return path


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    location = locate(None)
    found = grammars_of(location.directory, read_info(location).vocab_size, (END,))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def text() -> TextTokenizer:
    return TextTokenizer(locate(None).directory)


def tokens_of(mask: np.ndarray) -> list[int]:
    return np.unpackbits(mask.view(np.uint8), bitorder="little").nonzero()[0].tolist()


# --- masks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
def test_what_may_follow_depends_on_the_text_alone(grammar: Grammar, grammars: Grammars) -> None:
    """Not on the guesses that were tried and dropped on the way, nor on a replay after a crash."""
    rng = Random(1)
    for _ in range(8):
        wandering, known = grammars.matcher(grammar, (END,)), list[int]()
        while len(known) < 25:
            for _ in range(rng.randrange(3)):
                stroll(rng, wandering, rng.randint(1, 5))
            mask = wandering.allowed()
            replayed = grammars.matcher(grammar, (END,))
            replayed.extend(known)
            assert (replayed.allowed() == mask).all()
            forked = wandering.fork()
            assert (forked.allowed() == mask).all()
            token = rng.choice(tokens_of(mask))
            if token == END:
                break
            wandering.extend([token])
            known.append(token)


def stroll(rng: Random, matcher: Matcher, length: int) -> None:
    """Follow a random path, as a draft would."""
    path: list[int] = []
    for _ in range(length):
        choices = [token for token in tokens_of(matcher.allowed(path)) if token != END]
        if not choices:
            break
        path.append(rng.choice(choices))
        if rng.random() < 0.3:
            matcher.jump_forward(path)


def test_a_stop_token_may_come_exactly_where_the_grammar_accepts(
    grammars: Grammars, text: TextTokenizer
) -> None:
    matcher = grammars.matcher(Grammar("regex", "ab+"), (0, END))
    assert not {0, END} & {*tokens_of(matcher.allowed())}
    matcher.extend(text.encode_continuation("ab"))
    allowed = {*tokens_of(matcher.allowed())}
    assert {0, END} < allowed
    assert all(set(text.decode([token])) == {"b"} for token in allowed - {0, END})
    done = grammars.matcher(Grammar("regex", "ab"), (0, END))
    done.extend(text.encode_continuation("ab"))
    assert tokens_of(done.allowed()) == [0, END]


def test_forced_tokens_are_the_only_ones_allowed(grammars: Grammars, text: TextTokenizer) -> None:
    matcher = grammars.matcher(Grammar("json_schema", '{"const":"only this"}'), (END,))
    jump_forward = list(matcher.jump_forward())
    assert text.decode(jump_forward) == '"only this"'
    for index, token in enumerate(jump_forward):
        assert tokens_of(matcher.allowed(jump_forward[:index])) == [token]


def test_a_text_outside_its_grammar_is_an_error_and_not_taken_in(grammars: Grammars) -> None:
    matcher = grammars.matcher(Grammar("regex", "[0-9]+"), (END,))
    with pytest.raises(BadGrammar):
        matcher.extend([504])
    with pytest.raises(BadGrammar):
        matcher.allowed([504])
    assert (
        matcher.allowed() == grammars.matcher(Grammar("regex", "[0-9]+"), (END,)).allowed()
    ).all()


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(seed=5, top_k=7)])
def test_masked_tokens_are_outside_the_distribution(sampling: Sampling) -> None:
    rng = Random(3)
    for _ in range(50):
        logits = [rng.uniform(-4, 4) for _ in range(70)]
        allowed = rng.sample(range(70), rng.randint(1, 20))
        bits = np.zeros(96, np.uint8)
        bits[allowed] = 1
        mask = np.packbits(bits, bitorder="little").view(np.int32)
        scores = reference.edited(torch.tensor(logits).tolist(), (), (), sampling, allowed)
        request = SamplingRequest(0, 9, sampling, None, mask)
        assert choose_many(torch.tensor([logits]), [request]) == [
            reference.choose(scores, 9, sampling)
        ]


# --- rounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_one_seed_gives_one_text_for_any_drafts_and_company(
    sampling: Sampling, directory: Path
) -> None:
    runner, rng = make_runner(directory, block_count=256), Random(1)
    plain = generate(runner, PROMPT, sampling, 60)
    driver = Driver(runner, rng, trees_along(rng, {0: plain}, runner.vocab_size), chunk_max=5)
    live = driver.add(0, PROMPT, sampling, 60)
    for other in range(1, 4):
        driver.add(other, PROMPT[:other], rng.choice([*SAMPLINGS.values()]), 40)
    driver.run()
    assert live.output == plain
    accepted = sum(len(decision.path) for decision in live.decisions)
    assert 0 < accepted < driver.drafted


def test_a_preempted_text_goes_on_where_it_was(directory: Path) -> None:
    sampling = SAMPLINGS["plain"]
    runner = make_runner(directory)
    plain = generate(runner, PROMPT, sampling, 40)
    assert plain[-1] == END
    for cut in range(len(plain)):
        new_sequence = NewSequence((*PROMPT, *plain[:cut]), len(PROMPT), sampling)
        stop = len(new_sequence.tokens)
        row = make_row(0, stop, sequence_id=9, blocks=tuple(range(20)), new_sequence=new_sequence)
        (decision,) = runner.step(proposed(row)).decisions
        assert decision.tokens == (plain[cut],)


def test_a_draft_model_guesses_within_the_grammar(directory: Path) -> None:
    sampling = SAMPLINGS["plain"]
    runner = make_runner(directory)
    plain = generate(runner, PROMPT, sampling, 40)
    driver = Driver(runner, drafter=make_drafter(directory))
    live = driver.add(0, PROMPT, sampling, 40)
    driver.run()
    assert live.output == plain
    # The same model draws the same noise under the same grammar: every guess is right. The last
    # one ends the text, and so is no step on a path.
    assert sum(len(decision.path) for decision in live.decisions) == driver.drafted - 1 > 0


@pytest.mark.parametrize(
    ("grammar", "stops"),
    [(Grammar("regex", "("), (END,)), (PERSON, ()), (Grammar("regex", "[a&&b]"), (END,))],
)
def test_a_grammar_that_cannot_be_followed_fails_alone(
    grammar: Grammar, stops: tuple[int, ...], directory: Path
) -> None:
    runner, good = make_runner(directory), SAMPLINGS["greedy"]
    plain = generate(runner, PROMPT, good, 1)
    rows = [
        first_row(PROMPT, sampling, sequence_id=number, blocks=(number,))
        for number, sampling in enumerate((Sampling(grammar=grammar, stop_token_ids=stops), good))
    ]
    failed, decided = runner.step(proposed(*rows)).decisions
    assert failed.error.startswith("the grammar cannot be followed")
    assert not failed.tokens
    assert list(decided.tokens) == plain


def test_a_model_without_a_tokenizer_follows_no_grammar(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    runner = make_runner(tmp_path)
    (decision,) = runner.step(
        proposed(first_row((5, 6), SAMPLINGS["greedy"], blocks=(0,)))
    ).decisions
    assert "no tokenizer" in decision.error


# --- the check ----------------------------------------------------------------------------------


NUMBERS = {
    "between": {"type": "number", "minimum": 0.1, "maximum": 0.2},
    "above": {"type": "number", "exclusiveMinimum": 0},
    "any": {"type": "number"},
    "integer": {"type": "integer"},
    "in a list": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2},
    "duration": {"type": "string", "format": "duration", "maxLength": 40},
}


@pytest.mark.parametrize("wanted", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("digit", "139")
def test_a_number_ends_whatever_digit_a_model_likes(
    wanted: dict[str, object], digit: str, grammars: Grammars, text: TextTokenizer
) -> None:
    schema = {"type": "object", "properties": {"x": wanted}, "required": ["x"]}
    closed = json.dumps(reworded({**schema, "additionalProperties": False}))
    matcher = grammars.matcher(Grammar("json_schema", closed), (END,))
    said: list[int] = []
    while END not in (options := tokens_of(matcher.allowed(said))):
        liked = [each for each in options if text.decode([each], False)[:1] == digit]
        said.append((liked or [each for each in options if each != END])[0])
        assert len(said) < 120
    found = json.loads(text.decode(said, False))
    assert Draft202012Validator(schema).is_valid(found)


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("regex", "[0-9]{60}"),
        Grammar("json_schema", '{"type":"string","pattern":"^[0-9]{60}$"}'),
        Grammar("json_schema", '{"type":"string","pattern":"^[0-9-]{60}$"}'),
    ],
)
def test_digits_that_a_client_wants_are_as_many_as_it_wants(
    grammar: Grammar, grammars: Grammars, text: TextTokenizer
) -> None:
    matcher = grammars.matcher(grammar, (END,))
    said: list[int] = []
    while END not in (options := tokens_of(matcher.allowed(said))):
        liked = [each for each in options if text.decode([each], False)[:1] == "7"]
        said.append((liked or options)[0])
    assert text.decode(said).strip('"') == "7" * 60


def nested(depth: int) -> dict[str, object]:
    found: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        found = {"type": "array", "items": found}
    return found


def schema(value: object) -> Grammar:
    return Grammar("json_schema", json.dumps(value))


MANY = [{"type": "string", "pattern": f"a.*b{number}"} for number in range(100)]
NASTY = {
    "nested groups": Grammar("regex", "(" * 20_000 + "a" + ")" * 20_000),
    "open group": Grammar("regex", "(a"),
    "look-ahead": Grammar("regex", "(?=a)b"),
    "no text": Grammar("regex", "[a&&b]"),
    "empty": Grammar("lark", ""),
    "nonsense": Grammar("lark", "start: ("),
    "nested rules": Grammar("lark", "start: " + "(" * 20_000 + '"a"' + ")" * 20_000),
    "itself": Grammar("lark", "start: start"),
    "temperature": Grammar("lark", "start: a\na[temperature=0.5]: /b/\n"),
    "no start": Grammar("lark", 'foo: "a"'),
    "doubling": Grammar(
        "lark",
        "start: A0\n" + "".join(f"A{n}: A{n + 1} A{n + 1}\n" for n in range(40)) + 'A40: "a"\n',
    ),
    "million": Grammar("lark", 'start: ("a"{1000}){1000}'),
    "reference loop": schema({"$ref": "#"}),
    "remote": schema({"$ref": "http://localhost/schema"}),
    "dangling": schema({"$ref": "#/$defs/none"}),
    "empty range": schema({"type": "integer", "minimum": 5, "maximum": 3}),
    "not": schema({"not": {"type": "string"}}),
    "if": schema({"if": {"type": "string"}, "then": {"const": "a"}}),
    "unique": schema({"type": "array", "uniqueItems": True}),
    "one of": schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
    "unknown format": schema({"type": "string", "format": "smell"}),
    "unknown type": schema({"type": "colour"}),
    "deep": schema(nested(400)),
    "not an object": schema([1, 2]),
    "not JSON": Grammar("json_schema", "{"),
    "lone surrogate": Grammar("json_schema", '{"const":"\\ud800"}'),
    "many remainders": schema({"type": "integer", "multipleOf": 1_000_003}),
    "many patterns": schema({"allOf": MANY}),
    "many properties": schema({"properties": {f"p{n}": {} for n in range(20_000)}}),
}
HEAVY = {
    "nested stars": Grammar("regex", "(((a*)*)*)*b"),
    "nested counts": Grammar("regex", "((a{1,1000}){1,1000}){1,1000}"),
    "unlike end": Grammar("regex", "(a|b)*a(a|b){200}"),
    "ambiguous": Grammar("lark", 'start: s\ns: s s s | s s | "a"\n'),
    "large enum": schema({"enum": [f"value {number}" for number in range(5_000)]}),
    "recursive": schema({"type": "object", "properties": {"child": {"$ref": "#"}}}),
    "long": schema({"type": "string", "maxLength": 10**9}),
}


@pytest.fixture(scope="module")
def checker() -> GrammarChecker:
    return GrammarChecker(locate(None).directory, wall_s=DEADLINE_S)


@pytest.mark.parametrize("grammar", NASTY.values(), ids=NASTY)
def test_the_check_refuses_in_words_and_goes_on(grammar: Grammar, checker: GrammarChecker) -> None:
    with pytest.raises(BadGrammar) as caught:
        checker.check(grammar)
    assert 10 < len(str(caught.value)) < 300
    assert "<" not in str(caught.value).split("cannot be followed")[1][:20]
    checker.check(PERSON)


@pytest.mark.parametrize("grammar", HEAVY.values(), ids=HEAVY)
def test_heavy_grammars_are_taken(grammar: Grammar, checker: GrammarChecker) -> None:
    checker.check(grammar)
    assert list(checker._checked.values())[-1] == ""


def test_a_machine_that_is_busy_refuses_for_once() -> None:
    checker = GrammarChecker(locate(None).directory, cpu_s=DEADLINE_S, wall_s=0.0)
    with pytest.raises(CheckerLost):  # it computes for long, however late this one looks
        checker.check(schema({"allOf": MANY, "title": "busy"}))
    checker._wall_s = DEADLINE_S
    checker.check(PERSON)


def test_a_refusal_is_kept(checker: GrammarChecker) -> None:
    grammar = schema({"allOf": MANY, "title": "again"})
    for _ in range(2):
        with pytest.raises(BadGrammar, match="too long"):
            checker.check(grammar)
    assert len(checker._checked) > 0
