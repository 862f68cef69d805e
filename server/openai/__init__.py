"""OpenAI's wire: vector stores, files and embeddings, over the same vector DBs.

`alias` serves the same routes under `/v1/openai/v1` for Llama Stack's clients.
"""
