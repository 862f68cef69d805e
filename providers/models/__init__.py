"""What providers of embedding, re-ranking and inference share: model files, sessions, HTTP."""
