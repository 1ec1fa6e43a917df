"""Signals to the process that checks grammars."""

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

from benchmarks.reliability.chaos import Chaos, Recovery, flows_again
from benchmarks.support.streams import Stream
from draftwerk.machine.host import PROC

CHECKER = b"draftwerk.model.text.grammar_check"


@dataclass(slots=True)
class GrammarChaos(Chaos):
    """Signals to the process that checks grammars, each followed by a grammar that is new."""

    async def play(self, found: list[Stream]) -> list[Recovery]:
        if self.count:
            await self._ask("first")
        return await Chaos.play(self, found)

    async def _signal(self, found: list[Stream], begun: float) -> Recovery:
        victim = await self._process()
        assert victim is not None, "no process checks grammars"
        sent = perf_counter()
        os.kill(victim, self.what)
        await self._ask(f"{sent}")
        served = perf_counter()
        assert await self._process() not in (victim, None)
        moments = sorted(each for one in found for each in one.arrivals if each > sent)
        token_s, texts = flows_again(sent, moments) - sent, sum(each < served for each in moments)
        return Recovery(sent - begun, None, served - sent, token_s, texts)

    async def _ask(self, text: str) -> None:
        wanted = {"type": "regex", "pattern": re.escape(f"a {text}")}
        body = {"messages": [{"role": "user", "content": "?"}], "response_format": wanted}
        async with self.http.post(self.url + "/v1/chat/completions", json=body) as response:
            said = await response.text()
            assert response.status == 200, said
        assert json.loads(said)["choices"][0]["message"]["content"] == f"a {text}"

    async def _process(self) -> int | None:
        for folder in PROC.glob("[0-9]*"):
            with suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.pid and CHECKER in (folder / "cmdline").read_bytes():
                    return int(folder.name)
        return None
