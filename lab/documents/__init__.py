"""Documents with known layouts, tables and scans, to measure how well readers read them."""
