import pytest

from draftwerk.model.native.build import NativeUnavailable, library_path
from draftwerk.model.native.pool import Pool


@pytest.fixture(scope="session")
def pool() -> Pool:
    try:
        library_path()
    except NativeUnavailable as error:
        pytest.skip(str(error))
    return Pool(2)
