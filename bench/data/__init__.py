"""What is measured on: judged sets, texts that Corral makes itself, and their embeddings."""
