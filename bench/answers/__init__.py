"""The quality of answers: citations, refusals, contained answers, and judged statements."""
