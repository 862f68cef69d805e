"""How fast, at which size, for how many at once: ratios within one run."""
