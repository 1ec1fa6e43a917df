"""Where a prompt's tokens come from; the tokenizer's own tests encode each kind."""

from draftwerk.actors.texts.prompt_encoding import located, prompt_field
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, QueryPair
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.sampling import Sampling


def test_a_refusal_names_the_field_that_the_client_wrote() -> None:
    prompts = (Chat(()), QueryPair("q", "d"), "text", (1, 2))
    assert [*map(prompt_field, prompts)] == ["messages", "documents", "prompt", "prompt"]


def test_segments_are_where_the_tokens_have_them() -> None:
    plain, blended = (Options(sampling=Sampling(), blend=blend) for blend in (None, Blend(())))
    assert located(plain, ((0, 2),)) is plain
    assert located(blended, ()) is blended
    found = located(blended, ((0, 2),)).blend
    assert found is not None and found.spans == ((0, 2),)
