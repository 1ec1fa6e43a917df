from tests.support.one_thread import one_torch_thread as one_torch_thread
