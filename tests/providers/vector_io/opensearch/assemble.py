"""Assemble an OpenSearch server from the jars that Maven fetched: `assemble.py JARS HOME`.

Maven's central repository has the server and its modules as jars alone. A distribution has them in
folders, each module's with two files: a descriptor, and its permissions under Java's security
manager.
"""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from pathlib import Path

VERSION = re.compile(r"opensearch-([0-9.]+)\.jar")

MODULES = {
    "transport-netty4": (
        "org.opensearch.transport.Netty4Plugin",
        ("netty-", "transport-netty4"),
        "",
    ),
    "lang-painless": (
        "org.opensearch.painless.PainlessPlugin",
        ("lang-painless", "antlr4", "asm", "opensearch-scripting-painless"),
        "",
    ),
    "analysis-common": (
        "org.opensearch.analysis.common.CommonAnalysisPlugin",
        ("analysis-common",),
        "lang-painless",
    ),
}
"""By module, its class, how the names of its jars begin, and the module that it extends."""

PLUGIN = "opensearch-knn"


def assemble(jars: Path, home: Path) -> None:
    """Fill a folder with a server's files, in place of what it had."""
    shutil.rmtree(home, ignore_errors=True)
    names = [path.name for path in jars.iterdir()]
    [version] = [match[1] for match in map(VERSION.fullmatch, names) if match]
    for name in ("lib", "bin", "config"):  # the server would create the last two, empty
        (home / name).mkdir(parents=True)
    for module, (class_name, _, extended) in MODULES.items():
        folder = home / "modules" / module
        folder.mkdir(parents=True)
        descriptor = {
            "description": module,
            "name": module,
            "version": version,
            "opensearch.version": version,
            "java.version": "11",
            "classname": class_name,
            "extended.plugins": extended,
            "has.native.controller": "false",
        }
        lines = [f"{key}={value}\n" for key, value in descriptor.items()]
        (folder / "plugin-descriptor.properties").write_text("".join(lines))
        permissions = "grant { permission java.security.AllPermission; };\n"
        (folder / "plugin-security.policy").write_text(permissions)
    for jar in jars.glob("*.jar"):
        owners = [
            f"modules/{m}" for m, (_, begin, _) in MODULES.items() if jar.name.startswith(begin)
        ]
        shutil.copy(jar, home / (owners or ["lib"])[0])
    [plugin] = jars.glob(f"{PLUGIN}*.zip")
    folder = home / "plugins" / PLUGIN
    zipfile.ZipFile(plugin).extractall(folder)
    descriptor_file = folder / "plugin-descriptor.properties"
    # The plugin may be of an earlier patch release than the server, which compares the numbers.
    text = re.sub(
        "opensearch.version=.*", f"opensearch.version={version}", descriptor_file.read_text()
    )
    descriptor_file.write_text(text)


if __name__ == "__main__":
    assemble(Path(sys.argv[1]), Path(sys.argv[2]))
