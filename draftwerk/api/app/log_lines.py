"""Lines of the log: time with its zone, level and message, as text or as JSON."""

import json
import logging
import sys
from datetime import datetime
from typing import Literal

LogFormat = Literal["text", "json"]


def time_of(record: logging.LogRecord) -> str:
    """Return when a line was logged, by this machine's clock and with its zone."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


class TextLine(logging.Formatter):
    """A line to read: `2026-01-31T12:00:00.000+01:00 WARNING what happened`."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{time_of(record)} {record.levelname} {super().format(record)}"


class JsonLine(logging.Formatter):
    """A line for programs: an object with `time`, `level`, `message`, and `error` if one came."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": time_of(record), "level": record.levelname, "message": record.getMessage()}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


LINES: dict[LogFormat, type[logging.Formatter]] = {"text": TextLine, "json": JsonLine}


def log_to_stderr(kind: LogFormat) -> None:
    """Log to standard error in a format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LINES[kind]())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
