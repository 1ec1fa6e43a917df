"""What `draftwerk doctor` tells of the native kernels: which run."""

from draftwerk.api.cli.progress_line import ProgressLine
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import NativeUnavailable, obtain
from draftwerk.settings.setting_fields import ConfigError


def describe() -> str:
    """Return which native kernels run here, and how they were obtained. Raises ConfigError."""
    try:
        library = obtain(progress=ProgressLine().show)
    except Refused as error:
        raise ConfigError(str(error)) from None
    except NativeUnavailable as error:
        return f"none: {error}"
    return f"{library.isa.name}, {library.origin}"
