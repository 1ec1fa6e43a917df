"""The one check of a request's options: a value out of range is computed for no caller."""

import re

import msgspec

from draftwerk.speculative.request import CHOICES_MAX, Options

PLACE = re.compile(r" - at `(?:key in `)?\$\.?([^`]*)`")
TO_BYTES = msgspec.msgpack.Encoder()
FROM_BYTES = msgspec.msgpack.Decoder(Options)
"""The types of the fields hold their bounds, and only decoding looks at those."""


class OptionsError(ValueError):
    """A request's options have a value that no request may have."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"`{field}`: {reason}")
        self.field, self.reason = field, reason


def check_options(options: Options) -> None:
    """Raise OptionsError, which names the field, for what is out of its bounds."""
    if not 0 <= options.sampling.seed < 2**64:
        raise OptionsError("sampling.seed", "it has more than 64 bits")
    try:
        FROM_BYTES.decode(TO_BYTES.encode(options))
    except msgspec.ValidationError as error:
        raise _out_of_bounds(error) from None
    except (UnicodeEncodeError, OverflowError) as error:
        raise OptionsError("options", f"they cannot be encoded: {error}") from None
    _check_together(options)


def converted_options(given: object) -> Options:
    """Return the options that plain data stand for. Raises OptionsError."""
    try:
        options = msgspec.convert(given, Options)
    except msgspec.ValidationError as error:
        raise _out_of_bounds(error) from None
    check_options(options)
    return options


def _out_of_bounds(error: msgspec.ValidationError) -> OptionsError:
    words = str(error)
    place = PLACE.search(words)
    reason = PLACE.sub("", words).replace("`", "")
    return OptionsError(place[1] if place else "", reason[:1].lower() + reason[1:])


def _check_together(options: Options) -> None:
    """Raise OptionsError where fields that are each in bounds contradict one another."""
    if options.first_choice + options.choices > CHOICES_MAX:
        raise OptionsError("first_choice", f"no choice has the number {CHOICES_MAX}")
    if options.beam_width > 1 and options.choices > options.beam_width:
        reason = f"a beam of {options.beam_width} has no {options.choices} best texts"
        raise OptionsError("choices", reason)
    if len(options.forced_tokens) > 0 and (options.choices > 1 or options.beam_width > 1):
        raise OptionsError("given", "it is of one text")
    if options.written.tokens and (
        options.beam_width > 1
        or options.forced_tokens
        or options.prompt_logprobs >= 0
        or options.blend
    ):
        raise OptionsError("written", "what goes on from it is one text, and is only generated")
    end = 0
    for start, stop in () if options.blend is None else options.blend.spans:
        if not end <= start < stop:
            raise OptionsError("blend.spans", "segments overlap, or are not in order")
        end = stop
