"""GGUF files, written as the library writes them."""

from collections.abc import Mapping
from typing import Any

import gguf


def add_fields(writer: gguf.GGUFWriter, fields: Mapping[str, Any]) -> None:
    """Add fields, each by the type of its value."""
    add: dict[type, Any] = {
        **{int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool},
        **{str: writer.add_string, list: writer.add_array},
    }
    for key, value in fields.items():
        add[type(value)](key, value)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write all that was added, and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
