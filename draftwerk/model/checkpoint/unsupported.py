"""The one error of this folder that is meant for people's eyes."""


class Refused(ValueError):
    """A model, file or option that draftwerk does not serve, by name."""
