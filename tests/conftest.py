"""Tests run beside other work: one thread each, set before torch or scikit-learn is imported."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
