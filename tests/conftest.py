"""Tests run beside other work: one thread each, set before torch or scikit-learn is imported."""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")

# A test run that was started in the background inherits an ignored Ctrl-C; the tests of Ctrl-C need the usual one.
signal.signal(signal.SIGINT, signal.default_int_handler)
