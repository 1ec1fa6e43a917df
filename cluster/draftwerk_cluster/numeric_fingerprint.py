"""What an engine computes, as one digest: replicas with the same one may continue each other.

A fixed prompt is continued greedily and with noise, with the log-probabilities of each token's
rivals. Their bits depend on the weights, the formats, the kernels, the machine's instructions, the
noise and the vocabulary. What requests are refused enters too: a search that does not fit into a
smaller cache could not go on there.
"""

from collections.abc import Iterator
from hashlib import sha256
from struct import pack

from draftwerk.actors.engine import Engine
from draftwerk.actors.events.client_events import Delta, Failed
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling

PROMPT_TOKENS = 161
"""Ten blocks and one token: several chunks, and attention over more than one block."""
NEW_TOKENS = 24
RIVALS = 8
NOISES = (0.0, 1.0)


async def numeric_fingerprint(
    engine: Engine, model: ServedModel, limits: tuple[int, ...] = ()
) -> str:
    """Return the digest of an engine that has nothing else to do.

    `limits` are the sizes that decide what is refused. Raises RuntimeError if the engine fails.
    """
    digest = sha256(repr((model.vocab_size, model.dtype, model.exact, limits)).encode())
    length = min(PROMPT_TOKENS, model.context_max // 2)
    prompt = tuple(7 + 37 * index % max(model.vocab_size - 7, 1) for index in range(length))
    for number, temperature in enumerate(NOISES):
        sampling = Sampling(temperature=temperature, seed=20, logprobs=RIVALS)
        options = Options(
            sampling=sampling,
            tokens_max=min(NEW_TOKENS, model.context_max // 4),
            ignore_eos=True,
            tenant="fingerprint",
        )
        async with engine.generate(prompt, options, request_id=f"fingerprint {number}") as events:
            async for event in events:
                if isinstance(event, Failed):
                    raise RuntimeError(f"the engine could not be probed: {event.reason}")
                if isinstance(event, Delta):
                    for bits in _bits(event):
                        digest.update(bits)
    return digest.hexdigest()[:16]


def _bits(delta: Delta) -> Iterator[bytes]:
    for token, found in zip(delta.tokens, delta.logprobs, strict=True):
        yield token.to_bytes(4, "little")
        for each in (found, *found.top):
            yield pack("<id", each.token_id, each.logprob)
