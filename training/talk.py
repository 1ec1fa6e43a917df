"""Generate conversations with a model, for training its draft head.

`python -m training.talk URL texts.jsonl --count 3000` has a running server generate user turns (the
chat template's opening of a user's turn, completed at temperature 0.8: Magpie, arXiv
2406.08464), then for the answers: in turn greedy, at temperature 1, and as the server samples by
default. One JSON list of token ids a line: the whole conversation. No prompt of any benchmark goes
in.

`--passages FILE` uses given texts instead, a JSON string a line, for copying and summaries of text
the model did not write.
"""

import argparse
import asyncio
import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.text.tokenizer import TextTokenizer

OPENINGS = (
    "", "", "", "", "What is ", "What are ", "How do ", "How does ", "How can I ", "Why ",
    "Who ", "When ", "Where ", "Which ", "Can you ", "Could you explain ", "Explain ",
    "Describe ", "Define ", "Compare ", "Write a story about ", "Write a short essay about ",
    "Write an email to ", "Write a poem about ", "Write a blog post about ",
    "Write a Python function that ", "Write a program in C++ that ", "Write an SQL query that ",
    "Imagine you are ", "Act as ", "Pretend ", "Suppose ", "Give me a list of ", "List ",
    "Name three ", "Suggest ", "Summarize the following text:\n\n", "Summarize: ",
    "Translate into English: ", "Translate the following sentence from French to English: ",
    "Translate from Spanish to English: ", "Rewrite the following sentence ",
    "Correct the grammar: ", "Extract the names from the text below.\n\n", "Classify ",
    "Read the passage and answer the question.\n\n",
    "Answer the question with the help of these documents.\n\n", "Solve ", "If a train ",
    "If x ", "A farmer has ", "There are ", "Tom buys ", "A store sells ", "Calculate ",
    "Find the ", "Prove that ", "Given ", "Is it true that ", "Which country ", "Who wrote ",
    "Who sang ", "How many ", "How much ", "My ", "I ", "The ", "In ",
)  # fmt: skip
TASKS = (
    "Summarize: {}", "Summarize the following text:\n\n{}", "{}\n\nTL;DR",
    "What are the main points of this text?\n\n{}", "Explain in simple words:\n\n{}",
    "{}\n\nWrite a headline and three sentences for the text above.",
    "Answer with the help of this passage.\n\n{}\n\nWhat is it about, and who is named in it?",
    "{}\n\nList the facts that the passage states.", "Rewrite this to be clearer: {}",
    "Which question does the following text answer? Answer it too.\n\n{}",
)  # fmt: skip
"""What may be asked about a passage."""
QUESTION_TOKENS = 120
ANSWER_TOKENS = 256
TEMPERATURES = 0.0, 1.0, None
"""Of answers in turn; None is the server's default, by the model's card."""
MARK = "⟨question⟩"
QUESTION_TEMPERATURE = 0.8
LONG_SHARE = 0.1
"""Of questions that may be long, as those with a text in them are."""


class Talk:
    """A server, and how its model writes conversations down."""

    def __init__(self, url: str, text: TextTokenizer, seed: int, passages: Sequence[str]) -> None:
        self.http = httpx.AsyncClient(base_url=url, timeout=600)
        self.text = text
        self.dice = random.Random(seed)
        self.passages = passages

    async def conversation(self, number: int) -> list[int]:
        """Return one question and its answer as the model reads them."""
        question = await self._question(number)
        whole = self._render(question.strip())
        answer = await self._say(whole, ANSWER_TOKENS, TEMPERATURES[number % 3], number)
        return self._tokens(whole + answer)

    async def _question(self, number: int) -> str:
        if self.passages:
            return self.dice.choice(TASKS).format(self.dice.choice(self.passages))
        new_sequence = self.dice.choice(OPENINGS)
        begun = self._render(MARK).split(MARK)[0] + new_sequence
        room = QUESTION_TOKENS * (4 if self.dice.random() < LONG_SHARE else 1)
        return new_sequence + await self._say(begun, room, QUESTION_TEMPERATURE, number)

    async def _say(self, text: str, tokens: int, temperature: float | None, seed: int) -> str:
        body: dict[str, Any] = {
            "prompt": self._tokens(text),
            "max_tokens": tokens,
            "temperature": temperature,
            "seed": seed,
            "speculation": {"enabled": False},
        }
        reply = await self.http.post("/v1/completions", json=body)
        reply.raise_for_status()
        return str(reply.json()["choices"][0]["text"])

    def _render(self, question: str) -> str:
        return self.text.render_chat([{"role": "user", "content": question}])

    def _tokens(self, text: str) -> list[int]:
        return self.text.encode_continuation(text)


async def run(arguments: argparse.Namespace) -> None:
    lines = arguments.passages.read_text().splitlines() if arguments.passages else []
    text = TextTokenizer(locate(arguments.model).directory)
    talk = Talk(arguments.url, text, arguments.seed, [json.loads(line) for line in lines])
    numbers = itertools.islice(itertools.count(arguments.seed * 1_000_000), arguments.count)
    total = 0
    with arguments.output.open("a") as file:

        async def talker() -> None:
            nonlocal total
            for number in numbers:
                tokens = await talk.conversation(number)
                file.write(json.dumps(tokens) + "\n")
                file.flush()
                total += len(tokens)
                if number % 200 == 0:
                    print(f"{number}: {total} tokens", flush=True)

        await asyncio.gather(*(talker() for _ in range(arguments.at_once)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("output", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--passages", type=Path)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
