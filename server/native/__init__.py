"""Routes that only Corral has: documents, jobs, copies, orphans, re-ranking."""
