"""Wires of chat UIs and applications: each is served as they call it, with their own errors.

`rerank` (Cohere, Jina, TEI), `qdrant` (Open WebUI), `dify`, `librechat`, `functions` (tools of
OpenAI's APIs). `forms` gives keys and refusals their forms.
"""
