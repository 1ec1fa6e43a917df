"""Validation errors as refusals."""

import re

import msgspec

from draftwerk.api.core.errors import ApiError, refused
from draftwerk.settings.field_faults import fault_of

KIND = re.compile(r"Invalid (?:enum )?value '(\w{1,32})'")
MEDIA = {
    **dict.fromkeys(("image", "image_url", "input_image"), "images are"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "audio is"),
    **dict.fromkeys(("video", "video_url", "input_video"), "video is"),
    **dict.fromkeys(("file", "input_file", "document"), "files are"),
}
"""Types of a message's parts in other servers, in words."""


def invalid(message: str, struct: type[msgspec.Struct]) -> ApiError:
    """Turn a validation error into a 400 that names the field and what it may be."""
    fault = fault_of(message, struct)
    kind = KIND.match(message)
    if kind is not None and kind[1] in MEDIA and (fault.param or "").endswith(".type"):
        said = f"`{fault.param}`: {MEDIA[kind[1]]} not supported by this model, which reads text."
        return refused(said, fault.param, "unsupported")
    return refused(*fault)
