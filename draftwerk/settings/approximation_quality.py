"""Findings of `draftwerk doctor --approximate`: kept with the model, shown where it is served."""

from msgspec import Struct


class NeedleScore(Struct, frozen=True):
    """How often a number was found again in a long text."""

    tokens: int
    """The tokens of the text."""
    exact: int
    found: int
    asked: int


class StepTime(Struct, frozen=True):
    """Median milliseconds of a step."""

    rows: int
    """Texts that decode a token each."""
    exact_ms: float
    ms: float


class ApproximationQuality(Struct, frozen=True, kw_only=True):
    """How far texts with approximations are from the exact ones, over the exact greedy answers."""

    prompts: int
    prompt_tokens: int
    """The tokens of the longest prompt."""
    places: int
    """Tokens of all answers."""
    kl_mean: float
    """Nats a token, KL(exact || approximate)."""
    kl_p99: float
    same_best: float
    """Share of places where the likeliest token is the same."""
    parts_after: float
    """Mean tokens after which the greedy texts part; an answer's length where they do not."""
    answer_tokens: int
    needles: tuple[NeedleScore, ...]
    token_bytes: int
    """The bytes of a token's keys and values."""
    exact_token_bytes: int
    steps: tuple[StepTime, ...]

    def lines(self) -> list[str]:
        """Return it for people."""
        size, exact = self.token_bytes, self.exact_token_bytes
        return [
            f"{self.prompts} prompts of up to {self.prompt_tokens} tokens, {self.places} tokens of "
            "answers",
            f"KL {self.kl_mean:.5f} nats a token, 99 % below {self.kl_p99:.4f}; the same best "
            f"token after {100 * self.same_best:.1f} %",
            f"greedy texts part after {self.parts_after:.1f} of {self.answer_tokens} tokens",
            *(
                f"needle in {each.tokens} tokens: found {each.found} of {each.asked} "
                f"(exact {each.exact})"
                for each in self.needles
            ),
            f"keys and values: {size} bytes a token, {size / exact:.3f} of {exact}",
            *(
                f"{each.rows:2d} at once: {each.exact_ms:.1f} -> {each.ms:.1f} ms a step "
                f"({each.exact_ms / each.ms:.2f} x)"
                for each in self.steps
            ),
        ]
