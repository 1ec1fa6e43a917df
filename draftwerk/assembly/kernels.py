"""What `draftwerk doctor` tells of the native kernels: which run, and whether their bits hold."""

from draftwerk.api.cli.progress_line import ProgressLine
from draftwerk.assembly.doctor import compare
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import Library, NativeUnavailable, obtain
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError


def describe() -> str:
    """Return which native kernels run here, and how they were obtained. Raises ConfigError."""
    try:
        return _words(obtain(progress=ProgressLine().show))
    except Refused as error:
        raise ConfigError(str(error)) from None
    except NativeUnavailable as error:
        return f"none: {error}"


def compare_fingerprints(settings: EngineSettings, writes: bool) -> int:
    """Print digests of the kernels' logits; returns 1 if one is not as expected.

    With `writes` those found are expected from now on. Raises ConfigError.
    """
    from draftwerk.model.fingerprint import digests as fingerprint  # torch: a second
    from draftwerk.model.native.pool import Pool

    try:
        print(f"kernels: {_words(obtain(progress=ProgressLine().show))}")
        pool = Pool()
        found = fingerprint.tiny_fingerprints(pool)
        found |= fingerprint.model_fingerprints(settings.model or None, pool)
    except (Refused, NativeUnavailable) as error:
        raise ConfigError(str(error)) from None
    if writes:
        fingerprint.write(found)
    return compare(found, fingerprint.expected())


def _words(library: Library) -> str:
    return f"{library.isa.name}, {library.origin}"
