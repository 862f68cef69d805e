"""Files in folders, mails and archives that are skipped by name: keys, generated code."""

from __future__ import annotations

from fnmatch import fnmatchcase

_EXCLUDED = {
    "secret or key": (
        "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.gpg", "*.ppk",
        "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "authorized_keys", "known_hosts",
        ".env", ".env.*", "*.env", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd",
        "htpasswd", ".git-credentials", "credentials", "credentials.json",
        "credentials.csv", "secrets.json", "secrets.y*ml", "secrets.toml", "*.tfstate",
        "*.tfvars", "*.kubeconfig", "kubeconfig", "shadow", "shadow-", "gshadow", "gshadow-",
    ),
    "lock file": (
        "*.lock", "*-lock.json", "*-lock.yaml", "npm-shrinkwrap.json", "package.resolved",
        "go.sum", "go.work.sum",
    ),
    "generated": (
        "*.min.js", "*.min.mjs", "*.min.css", "*.bundle.js", "*.map", "*_pb2.py", "*_pb2.pyi",
        "*_pb2_grpc.py", "*.pb.go", "*.pb.cc", "*.pb.h", "*.g.dart", "*.generated.*",
    ),
    "picture": ("*.svg", "*.xpm", "*.eps", "*.ps"),
}  # fmt: skip
"""Patterns of names in lower case, by kind of file."""


def excluded(name: str) -> str | None:
    """Return the kind of a file if its name excludes it; None for any other file."""
    lower = name.lower()
    for kind, patterns in _EXCLUDED.items():
        if any(fnmatchcase(lower, pattern) for pattern in patterns):
            return kind
    return None
