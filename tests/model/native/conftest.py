import pytest

from draftwerk.model.native.pool import Pool
from tests.support.runners import require_kernels


@pytest.fixture(scope="session")
def pool() -> Pool:
    require_kernels()
    return Pool(2)
