"""GGUF files, written as the library writes them."""

import gguf


def finish(writer: gguf.GGUFWriter) -> None:
    """Write all that was added, and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
