"""`draftwerk doctor --fingerprint`: whether this machine computes the bits of all others."""

from collections.abc import Iterator, Mapping

from draftwerk.assembly.doctor import show
from draftwerk.assembly.kernels import describe
from draftwerk.assembly.model_findings import Finding
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.pool import Pool
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from draftwerk_tools.trials import digests


def compare_fingerprints(settings: EngineSettings, writes: bool) -> int:
    """Print digests of the kernels' logits; returns 1 if one is not as expected.

    With `writes` those found are expected from now on. Raises ConfigError.
    """
    print(f"kernels: {describe()}")
    try:
        pool = Pool()
        found = digests.tiny_fingerprints(pool)
        found |= digests.model_fingerprints(settings.model or None, pool)
    except (Refused, NativeUnavailable) as error:
        raise ConfigError(str(error)) from None
    if writes:
        digests.write(found)
    return int(show(compared(found, digests.expected())))


def compared(found: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each digest; one that differs is bad."""
    for name, digest in found.items():
        if name not in expected:
            yield Finding("good", name, f"{digest} (no other machine's to compare with)")
        elif digest == expected[name]:
            yield Finding("good", name, f"{digest} as on every machine")
        else:
            yield Finding("bad", name, f"{digest}, but {expected[name]} is expected")
