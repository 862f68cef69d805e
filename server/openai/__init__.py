"""OpenAI's wire: vector stores, files and embeddings, over the same vector DBs.

`alias` serves all of it once more under `/v1/openai/v1`, as Llama Stack's clients expect it.
"""
