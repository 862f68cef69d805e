"""Names of files that are left out of a folder, and what .gitignore says."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from pathspec import GitIgnoreSpec

_LEFT_OUT = {
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
"""Kind of file -> patterns of names in lower case."""


def left_out(name: str) -> str | None:
    """Return the kind of a file that is left out by its name; None for any other file."""
    lower = name.lower()
    for kind, patterns in _LEFT_OUT.items():
        if any(fnmatchcase(lower, pattern) for pattern in patterns):
            return kind
    return None


def globs(patterns: Sequence[str]) -> GitIgnoreSpec | None:
    """Return the patterns of an option, None for none."""
    return GitIgnoreSpec.from_lines(patterns) if patterns else None


class Ignoring:
    """The .gitignore files of a folder, of its subfolders, and of the repository that it is in.

    Args:
        root: The folder, without links in its path.
    """

    def __init__(self, root: Path) -> None:
        self._specs: dict[Path, GitIgnoreSpec] = {}
        for folder in [root, *root.parents]:
            self.enter(folder)
            if (folder / ".git").exists():
                return
        # In no repository: what lies above the folder says nothing about it.
        self._specs = {root: self._specs[root]} if root in self._specs else {}

    def enter(self, folder: Path) -> None:
        """Read the .gitignore of a folder, if it has one."""
        file = folder / ".gitignore"
        if folder not in self._specs and file.is_file():
            lines = file.read_text("utf-8", "replace").splitlines()
            self._specs[folder] = GitIgnoreSpec.from_lines(lines)

    def ignores(self, path: Path, *, folder: bool = False) -> bool:
        """Return True if git ignores a path; the .gitignore nearest to it decides."""
        for above in path.parents:
            spec = self._specs.get(above)
            if spec is not None:
                relative = path.relative_to(above).as_posix() + ("/" if folder else "")
                ignored = spec.check_file(relative).include
                if ignored is not None:
                    return ignored
        return False
