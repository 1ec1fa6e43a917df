"""Validation errors as refusals."""

import msgspec

from draftwerk.api.core.errors import ApiError, refused
from draftwerk.settings.field_faults import fault_of


def invalid(message: str, struct: type[msgspec.Struct]) -> ApiError:
    """Turn a validation error into a 400 that names the field and what it may be."""
    return refused(*fault_of(message, struct))
