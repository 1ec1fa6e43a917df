"""Grammars checked before a request is decoded under them."""

import logging
from dataclasses import dataclass

import anyio
import msgspec

from draftwerk.actors.devices.device import Worker
from draftwerk.actors.messages import Submit
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.speculative.load.size_limits import RefusedError
from draftwerk.speculative.replies.weaker_grammars import weaker
from draftwerk.speculative.sampling import Grammar

GRAMMAR_FIELD = "response_format"

log = logging.getLogger("draftwerk")


class UncheckedError(Exception):
    """Whether a request can be served cannot be told now."""


@dataclass(slots=True, frozen=True)
class GrammarChecks:
    """The check of a model's grammars, on a worker thread."""

    worker: Worker
    text: TextTools
    limit_s: float

    async def checked(self, submit: Submit) -> Submit:
        """Return a request, its grammar without lax schemas of tools that cannot be followed.

        Raises RefusedError and UncheckedError.
        """
        grammar = submit.options.sampling.grammar
        if grammar is None:
            return submit
        with anyio.move_on_after(self.limit_s):
            written = submit.options.written.tokens
            while fault := await self._fault(grammar, written):
                weakened = weaker(grammar, fault)
                if weakened is None:
                    raise RefusedError(fault, GRAMMAR_FIELD)
                log.info("id=%s a tool's schema is weakened: %s", submit.request_id, fault)
                grammar = weakened
            return with_grammar(submit, grammar)
        raise UncheckedError("the grammar cannot be checked now: the server is busy")

    async def _fault(self, grammar: Grammar, written: tuple[int, ...]) -> str:
        """Return what is wrong with a grammar, or with a text begun under it; empty for nothing."""
        try:
            await self.worker.run(lambda: self.text.check_grammar(grammar, written))
        except ValueError as error:
            return str(error)
        except OSError as error:
            raise UncheckedError("the grammar cannot be checked now") from error
        return ""


def with_grammar(submit: Submit, grammar: Grammar) -> Submit:
    """Return a request whose text is generated under a grammar."""
    options = submit.options
    sampling = msgspec.structs.replace(options.sampling, grammar=grammar)
    return msgspec.structs.replace(
        submit, options=msgspec.structs.replace(options, sampling=sampling)
    )
