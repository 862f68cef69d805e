"""Make containers by code: ZIP archives, and mails as Outlook saves them (MS-CFB, MS-OXMSG)."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping

SECTOR = 512
_END, _FREE, _NONE = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFF
_STORAGE, _STREAM, _ROOT = 1, 2, 5
Tree = Mapping[str, "bytes | Tree"]


def zipped(files: Mapping[str, bytes | str]) -> bytes:
    """Return an archive of files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(name, data)
    return out.getvalue()


def msg(texts: Mapping[str, str], attached: Mapping[str, bytes] | None = None) -> bytes:
    """Return a mail.

    Args:
        texts: Its properties of text by their number, such as 0037 for the subject.
        attached: Attachments by file name.
    """
    tree: dict[str, bytes | Tree] = dict(_properties(texts, bytes(32)))
    for number, (name, data) in enumerate((attached or {}).items()):
        by_value = struct.pack("<IIQ", 0x37050003, 6, 1)
        content = struct.pack("<IIQ", 0x37010102, 6, len(data))
        tree[f"__attach_version1.0_#{number:08X}"] = {
            **_properties({"3707": name}, bytes(8) + by_value + content),
            "__substg1.0_37010102": data,
        }
    return compound(tree)


def _properties(texts: Mapping[str, str], head: bytes) -> Tree:
    entries = [head]
    streams: dict[str, bytes | Tree] = {}
    for key, text in {"001A": "IPM.Note", **texts}.items():
        data = text.encode("utf-16-le")
        streams[f"__substg1.0_{key}001F"] = data
        entries.append(struct.pack("<IIQ", int(key, 16) << 16 | 0x1F, 6, len(data) + 2))
    return {"__properties_version1.0": b"".join(entries), **streams}


class _Sectors:
    """Streams in sectors of one size, and the table that chains them."""

    def __init__(self, size: int) -> None:
        self.size, self.data = size, b""
        self.table: list[int] = []

    def add(self, data: bytes) -> int:
        """Store a stream and return its first sector."""
        start, count = len(self.table), -(-len(data) // self.size)
        self.data += data.ljust(count * self.size, b"\0")
        self.table += [*range(start + 1, start + count), _END] if count else []
        return start if count else _END


def compound(tree: Tree) -> bytes:
    """Return a compound file; siblings are a list to the right."""
    entries: list[bytes] = []
    large, small = _Sectors(SECTOR), _Sectors(64)

    def entry(name: str, kind: int, right: int, child: int, start: int, size: int) -> bytes:
        label = name.encode("utf-16-le")
        head = label.ljust(64, b"\0") + struct.pack("<HBB", len(label) + 2, kind, 1)
        links = struct.pack("<III", _NONE, right, child)
        return head + links + bytes(36) + struct.pack("<IQ", start, size)

    def add(name: str, node: bytes | Tree, right: int) -> int:
        if isinstance(node, bytes):
            start = (small if len(node) < 4096 else large).add(node)
            made = entry(name, _STREAM, right, _NONE, start, len(node))
        else:
            made = entry(name, _STORAGE, right, children(node), 0, 0)
        entries.append(made)
        return len(entries)  # 0 is the root

    def children(node: Tree) -> int:
        right = _NONE
        for name in sorted(node, key=lambda each: (len(each), each.upper()), reverse=True):
            right = add(name, node[name], right)
        return right

    first = children(tree)
    root = entry("Root Entry", _ROOT, _NONE, first, large.add(small.data), len(small.data))
    directory = large.add(b"".join([root, *entries]))
    small_table = b"".join(struct.pack("<I", each) for each in small.table)
    small_count = -(-len(small_table) // SECTOR)
    small_at = large.add(small_table.ljust(small_count * SECTOR, b"\xff"))
    count = (len(large.table) + 127) // 127
    table = [*large.table, *[0xFFFFFFFD] * count]
    table += [_FREE] * (count * 128 - len(table))
    places = [*range(len(large.table), len(large.table) + count), *[_FREE] * (109 - count)]
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    head += struct.pack("<HHHHH6xIIIIIIIII", 62, 3, 0xFFFE, 9, 6, 0, count, directory, 0, 4096,
                        small_at, small_count, _END, 0)  # fmt: skip
    rest = struct.pack(f"<{len(table)}I", *table)
    return head + struct.pack("<109I", *places) + large.data + rest
