from tests.model.gpu.device import DEVICE

try:
    import triton  # noqa: F401
except ImportError:
    pass
else:
    from tests.model.gpu.quick_interpreter import hasten

    if DEVICE.type == "cpu":
        hasten()
