"""How good are answers: citations, refusals, contained answers, and a judge for the statements."""
