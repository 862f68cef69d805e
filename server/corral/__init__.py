"""Routes that only Corral has: documents, copies, orphans, limits."""
