"""Measurements: quality on judged data, speed as ratios in one run. Nothing is timed in tests.

One BLAS thread for everything that is measured here, as the server sets it for itself: a product
of one matrix and one vector gains little from a second one, and loses much on a busy machine. It
has to be said before numpy is first imported.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
