from tests.model.gpu.support.device import DEVICE

try:
    import triton  # noqa: F401
except ImportError:
    pass
else:
    from tests.model.gpu.support.quick_interpreter import hasten

    if DEVICE.type == "cpu":
        hasten()
