"""Measurements: quality on judged data, speed as ratios in one run. Nothing is timed in tests.

Everything is measured with one BLAS thread, as in the server: a matrix-vector product gains little
from a second thread, and loses much on a busy machine. This must be set before numpy is first
imported.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
