"""Lines of the log have a time with its zone and a level; as JSON they are one object each."""

import json
import logging
import sys
from datetime import datetime

from draftwerk.api.app.log_lines import JsonLine, TextLine


def record() -> logging.LogRecord:
    try:
        raise ValueError("no such thing")
    except ValueError:
        return logging.LogRecord(
            "draftwerk", logging.WARNING, __file__, 1, "id=%s: two\nlines", ("7",), sys.exc_info()
        )


def test_a_line_of_text_has_time_zone_and_level():
    moment, level, rest = TextLine().format(record()).split(" ", 2)
    assert datetime.fromisoformat(moment).tzinfo is not None
    assert (level, rest.splitlines()[0]) == ("WARNING", "id=7: two")


def test_a_line_of_json_is_one_object():
    line = JsonLine().format(record())
    assert "\n" not in line
    found = json.loads(line)
    assert datetime.fromisoformat(found["time"]).tzinfo is not None
    assert (found["level"], found["message"]) == ("WARNING", "id=7: two\nlines")
    assert found["error"].endswith("ValueError: no such thing")
