"""One row per request: what was asked, when things happened, how it ended."""

from itertools import pairwise
from typing import Literal

from msgspec import Struct

RequestOutcome = Literal["ok", "refused", "error", "cancelled"]


class RequestRow(Struct, kw_only=True, omit_defaults=True):
    """Times are seconds from the start of the run; `chunk_s` are the arrivals of content.

    `chunk_tokens[i]` is the count of output tokens after chunk i where the server sends it.
    `resent` is how often the request met a kept connection that the server had closed.
    `count_right` is how many numbers of a counting answer came in order.
    """

    session: int
    turn: int
    category: str = ""
    warmup: bool = False
    outcome: RequestOutcome
    error: str | None = None
    status: int | None = None
    detail: str = ""
    retry_after: str | None = None
    scheduled_s: float
    sent_s: float
    first_s: float | None = None
    last_s: float | None = None
    ended_s: float
    resent: int = 0
    chunks: int = 0
    chunk_s: list[float] = []
    chunk_tokens: list[int] = []
    output_wanted: int
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    counted_by_chunks: bool = False
    finish_reason: str | None = None
    spec_steps: int | None = None
    spec_accepted: int | None = None
    spec_drafted: int | None = None
    spec_histogram: list[int] = []
    spec_adds_up: bool = True
    server_first_ms: float | None = None
    server_queue_ms: float | None = None
    text_hash: str = ""
    text: str | None = None
    count_right: int | None = None
    correct: bool | None = None

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def lateness_s(self) -> float:
        """How long after its scheduled time the request went out."""
        return self.sent_s - self.scheduled_s

    @property
    def tokens_in_first_chunk(self) -> float:
        """Tokens of the first chunk: where no chunk says its count, the mean of all chunks."""
        if self.chunk_tokens:
            return self.chunk_tokens[0]
        if self.output_tokens is None or not self.chunks:
            return 1
        return max(1.0, self.output_tokens / self.chunks)

    def ttft_s(self, scheduled: bool = True) -> float | None:
        """Time to the first content, from the scheduled time or from sending."""
        return None if self.first_s is None else self.first_s - self._start(scheduled)

    def e2e_s(self, scheduled: bool = True) -> float:
        return self.ended_s - self._start(scheduled)

    def tpot_s(self) -> float | None:
        """Time per output token after the first chunk; None if everything came in one."""
        if self.first_s is None or self.last_s is None or self.output_tokens is None:
            return None
        after = self.output_tokens - self.tokens_in_first_chunk
        return (self.last_s - self.first_s) / after if after > 0 and self.chunks > 1 else None

    def unexplained_s(self) -> float | None:
        """Return E2E - (TTFT + TPOT x (N - first)): what follows the last content."""
        ttft, tpot = self.ttft_s(), self.tpot_s()
        if ttft is None or tpot is None or self.output_tokens is None:
            return None
        return self.e2e_s() - ttft - tpot * (self.output_tokens - self.tokens_in_first_chunk)

    def gaps_s(self) -> list[float]:
        """Times between content chunks, however many tokens each carried."""
        return [later - earlier for earlier, later in pairwise(self.chunk_s)]

    def _start(self, scheduled: bool) -> float:
        return self.scheduled_s if scheduled else self.sent_s
