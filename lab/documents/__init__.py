"""Documents with known layouts, tables and scans, and how well readers read them."""
