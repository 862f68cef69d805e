"""Applications whose wire formats Corral serves: Qdrant's for Open WebUI, Dify's and LibreChat's.

Each is an `Application` in the entry-point group `corral.routers`, like those of other packages.
"""
