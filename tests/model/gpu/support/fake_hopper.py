"""A Hopper without a Hopper: Triton binds, specialises and compiles every launch, and runs none.

The interpreter and ahead-of-time compiling both go around the binder; this goes through it, and
through the checks of shared memory, warps and grids. Tensors stay on the CPU, matrix products come
to zeros, and what a kernel would have written stays as it is. A mistake raises LaunchFault.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from draftwerk.model.gpu.graphs import WARM_UPS
from draftwerk.model.gpu.kernels import launch

CAPABILITY, CORES, WARP = 90, 132, 32
SHARED_MAX = 227 << 10
"""Of a block, on an H100 and an H200."""
THREADS_MAX = 1024
GRID_MAX = (2**31 - 1, 65535, 65535)


class LaunchFault(Exception):
    """What a card would have refused, or what must not happen there."""


class Form(NamedTuple):
    """A kernel compiled for some constants and types."""

    kernel: str
    shared_bytes: int
    warps: int
    signature: tuple[str, ...]
    aligned: tuple[str, ...]
    constants: tuple[str, ...]


class LaunchLog:
    """What was compiled and launched."""

    def __init__(self) -> None:
        self.forms: list[Form] = []
        self.launches: dict[str, int] = {}
        self.kernels = set[Any]()
        self.forbidden = ""
        """Why nothing may be compiled now; empty where it may."""

    def clear(self) -> None:
        """Forget what was noted, and have Triton bind and compile all of it again.

        What its cache on disk holds is read from there.
        """
        self.forms.clear()
        self.launches.clear()
        for kernel in self.kernels:
            kernel.device_caches.clear()

    def compiled(self, form: Form) -> None:
        """Note a form. Raises LaunchFault where none may be compiled."""
        if self.forbidden:
            like = [other for other in self.forms if other.constants == form.constants]
            raise LaunchFault(f"a kernel is compiled {self.forbidden}: {form}, like {like}")
        self.forms.append(form)

    def launched(self, kernel: str, grid: tuple[int, int, int]) -> None:
        """Note a launch. Raises LaunchFault for a grid that no card takes."""
        if not all(0 < size <= most for size, most in zip(grid, GRID_MAX, strict=True)):
            raise LaunchFault(f"{kernel} has an empty grid, or one too large: {grid}")
        self.launches[kernel] = self.launches.get(kernel, 0) + 1

    @contextmanager
    def nothing_compiled(self, when: str) -> Generator[None]:
        """Have every compilation raise LaunchFault."""
        before, self.forbidden = self.forbidden, when
        try:
            yield
        finally:
            self.forbidden = before


class Utils:
    """What Triton asks of a device."""

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, ...]:
        return object(), object(), 0, 0, THREADS_MAX

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED_MAX, "multiprocessor_count": CORES, "warpSize": WARP}


class FakeHopper(DriverBase):
    """A Triton driver; it is made for a log."""

    def __init__(self, log: LaunchLog) -> None:
        self.utils = Utils()
        self.launcher_cls = lambda source, metadata: Launcher(log, source, metadata)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return "int"

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", CAPABILITY, WARP)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> None:
        return None


class Launcher:
    """Made by Triton once for each form, when that is launched for the first time."""

    def __init__(self, log: LaunchLog, source: Any, metadata: Any) -> None:
        self.log, self.name = log, source.fn.__name__
        log.kernels.add(source.fn)
        names = source.fn.arg_names
        constants = {names[at[0]]: value for at, value in source.constants.items()}
        log.compiled(
            Form(
                self.name,
                metadata.shared,
                metadata.num_warps,
                tuple(f"{name}: {kind}" for name, kind in source.signature.items()),
                tuple(names[at[0]] for at, value in source.attrs.items() if value),
                tuple(f"{name}={value}" for name, value in constants.items()),
            )
        )

    def __call__(self, x: int, y: int, z: int, *others: Any) -> None:
        self.log.launched(self.name, (x, y, z))


class Recorder:
    """Captures as `CudaRecorder` does: in a capture nothing is compiled or read.

    It warms up once where that does.
    """

    def __init__(self, log: LaunchLog) -> None:
        self.log = log

    def record(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        for _ in range(min(WARM_UPS, 1)):
            work()
        with self.log.nothing_compiled("inside a capture"), NothingRead():
            result = work()
        return lambda: result


class NothingRead(TorchDispatchMode):
    """What a capture refuses: to read a number back from the device, or to send one."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    READS = (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "is_nonzero",
        "item",
        "lift_fresh",
        "repeat_interleave",
        "unique",
    )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__.split(".")[0] in self.READS:
            raise LaunchFault(f"{func} inside a capture waits for the device")
        return func(*args, **(kwargs or {}))


class NoProducts(TorchDispatchMode):
    """Matrix products come to zeros at once; new tensors hold zeros, random ones too."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it, torch would import it: three seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.__name__.split(".")[0], kwargs or {}
        if name in ("mm", "addmm", "linear"):
            first, second = args[-2:] if name == "addmm" else args[:2]
            columns = second.shape[0] if name == "linear" else second.shape[1]
            return zeros((*first.shape[:-1], columns), first.dtype)
        if name == "normal_":
            return args[0]
        if name == "_scaled_mm":
            return scaled_product(*args, **kwargs)
        made = func(*args, **kwargs)
        return zeros(made.shape, made.dtype) if name.startswith(("empty", "new_empty")) else made


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return zeros whose memory is not touched before it is read."""
    data = np.zeros(max(1, prod(shape)) * dtype.itemsize, np.uint8)
    return torch.from_numpy(data).view(dtype)[: prod(shape)].view(*shape)


def scaled_product(
    left: Tensor,
    right: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    use_fast_accum: bool = False,
) -> Tensor:
    """Return zeros for e4m3 matrices that the device takes. Raises LaunchFault for others."""
    sizes = (*left.shape[1:], *right.shape)
    if left.stride(-1) != 1 or right.stride(0) != 1 or any(size % 16 for size in sizes):
        raise LaunchFault(f"_scaled_mm takes no {left.shape} by {right.shape}")
    if scale_a.shape != (len(left), 1) or scale_b.shape != (1, right.shape[1]):
        raise LaunchFault(f"_scaled_mm takes no scales {scale_a.shape}, {scale_b.shape}")
    return zeros((len(left), right.shape[1]), out_dtype)


def install() -> LaunchLog:
    """Make this process's Triton launch on the card that is not there."""
    assert not launch.is_interpreted(), "without TRITON_INTERPRET"
    log = LaunchLog()
    triton.runtime.driver.set_active(FakeHopper(log))
    launch.CORES_WITHOUT_A_GPU = CORES
    launch.core_count.cache_clear()
    return log
