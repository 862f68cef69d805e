"""Applications whose wire formats Corral serves: Qdrant's for Open WebUI, Dify's and LibreChat's.

Each is an `Application` under the entry-point group `corral.routers`, as one of another package
would be.
"""
