"""The prompt between two texts: other files first, and how the text begins last."""

from types import SimpleNamespace
from typing import Any

from draftwerk.api.requests.prompts.fim_prompt import Fim, fim_prompt
from draftwerk.speculative.requests.fim import FimTokens

TOKENS = FimTokens(before=1000, after=1001, middle=1002, file=1003)


class Worker:
    async def run(self, work: Any) -> Any:
        return work()


def state(tokens: FimTokens | None) -> Any:
    text = SimpleNamespace(
        encode=lambda text: [7, *text.encode()], encode_continuation=lambda text: [*text.encode()]
    )
    return SimpleNamespace(model=SimpleNamespace(fim=tokens), text_tools=text, text_worker=Worker())


async def test_parts_stand_between_their_tokens() -> None:
    fim = Fim(before="a", after="b", begun="c")
    assert await fim_prompt(state(TOKENS), fim, "suffix") == (7, 1000, 97, 1001, 98, 1002, 99)


async def test_other_files_come_first_by_their_names() -> None:
    found = await fim_prompt(state(TOKENS), Fim(before="a", after="b", files=(("n", "t"),)), "x")
    assert found[:5] == (7, 1003, *b"n\nt") and found[-4:] == (97, 1001, 98, 1002)
