from tests.support import one_thread as one_thread
