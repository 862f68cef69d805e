"""Speed by size and concurrency, as ratios within one run."""
