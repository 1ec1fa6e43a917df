"""Certificates: what reusing segments was measured to change, kept beside the model's cache."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from draftwerk.api.core.ports import BlendCertificate
from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.speculative.blend.measured import Quality
from draftwerk.speculative.blend.rules import RULES, RuleName

FOLDER = "blends"
KL_MAX, TOP1_MIN = 0.02, 0.95
"""The bound: mean KL in nats a token, and how often the best token must be the exact one."""


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement."""

    model: str
    """Fingerprint of all that decides keys and values."""
    prompt_count: int
    kl_max: float
    """The bound on the mean KL that it was made for."""
    top1_min: float
    found: tuple[Quality, ...]

    @property
    def id(self) -> str:
        """Return what replies name it by."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    def is_good(self, quality: Quality) -> bool:
        """Whether a rule at a ratio stays under the bound."""
        return quality.kl_mean <= self.kl_max and quality.top1 >= self.top1_min

    def served(self) -> BlendCertificate | None:
        """Return what may be asked for; None if no rule is good enough.

        A ratio is served if it and every measured one above it are good. The default is the rule
        that gives the first token soonest.
        """
        least: dict[RuleName, Quality] = {}
        rules: set[RuleName] = {each.rule for each in self.found}
        for rule in rules:
            of_rule = sorted((q for q in self.found if q.rule == rule), key=lambda q: -q.ratio)
            for quality in of_rule:
                if not self.is_good(quality):
                    break
                least[rule] = quality
        if not least:
            return None
        best = min(least.values(), key=lambda quality: quality.first_token_s)
        ratios: dict[RuleName, float] = {rule: least[rule].ratio for rule in RULES if rule in least}
        return BlendCertificate(id=self.id, rules=ratios, default=(best.rule, best.ratio))


def path_of(model: str) -> Path:
    """Return where a model's certificate is."""
    return cache_directory() / FOLDER / f"{model}.json"


def write(certificate: Certificate) -> Path:
    """Keep a certificate in place of the one before. Raises OSError."""
    path = path_of(certificate.model)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(certificate)))
    partial.replace(path)
    return path


def read(model: str) -> Certificate | None:
    """Return a model's certificate, None without one that can be read."""
    if not model:
        return None
    try:
        found = msgspec.json.decode(path_of(model).read_bytes(), type=Certificate)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.model == model else None


def table(found: Sequence[Quality]) -> str:
    """Return measurements for people."""
    lines = ["rule     ratio  KL mean   KL p99   top-1  diverges  overlap  first token (exact)"]
    for each in found:
        lines.append(
            f"{each.rule:8s} {each.ratio:5.2f} {each.kl_mean:8.4f} {each.kl_p99:8.3f} "
            f"{each.top1:7.3f} {each.first_divergence:9.1f} {each.overlap:8.3f} "
            f"{each.first_token_s:6.3f} s ({each.exact_s:.3f} s)"
        )
    return "\n".join(lines)
