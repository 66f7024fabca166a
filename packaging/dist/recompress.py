"""recompress.py WHEEL OUT: writes the wheel again, as small as deflate can make it, to OUT.

`wheel pack` compresses with zlib, at its middle level. libdeflate's best level makes a wheel of native code some 4 %
smaller, and pip reads both alike. Names, times, permissions and contents stay.
"""

import struct
import sys
import zipfile

import deflate

BEST = 12
UTF8_NAME = 0x800


def compressed(content: bytes) -> "tuple[int, bytes]":
    """The method of compression and the bytes that are stored."""
    smaller = bytes(deflate.deflate_compress(content, BEST))
    return (zipfile.ZIP_DEFLATED, smaller) if len(smaller) < len(content) else (zipfile.ZIP_STORED, content)


def header(info: zipfile.ZipInfo, method: int, size: int) -> bytes:
    """What the header before a file and its entry in the directory have in common."""
    year, month, day, hour, minute, second = info.date_time
    date, time = (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2
    flags = 0 if info.filename.isascii() else UTF8_NAME
    name = info.filename.encode()
    return struct.pack("<5H3I2H", 20, flags, method, time, date, info.CRC, size, info.file_size, len(name), 0)


def recompress(wheel: str, out: str) -> None:
    directory, offset = [], 0
    with zipfile.ZipFile(wheel) as source, open(out, "wb") as target:
        for info in source.infolist():
            method, content = compressed(source.read(info))
            common, name = header(info, method, len(content)), info.filename.encode()
            target.write(b"PK\3\4" + common + name + content)
            entry = struct.pack("<3H2I", 0, 0, 0, info.external_attr, offset)
            # Made on Unix: the permissions are those of `external_attr`.
            directory.append(b"PK\1\2" + struct.pack("<BB", 20, 3) + common + entry + name)
            offset += len(b"PK\3\4") + len(common) + len(name) + len(content)
        entries = b"".join(directory)
        end = struct.pack("<4H2IH", 0, 0, len(directory), len(directory), len(entries), offset, 0)
        target.write(entries + b"PK\5\6" + end)


def require_same(wheel: str, out: str) -> None:
    """Fails unless both have the same files."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(out) as target:
        listed = [
            [(info.filename, info.date_time, info.external_attr, archive.read(info)) for info in archive.infolist()]
            for archive in (source, target)
        ]
    if listed[0] != listed[1]:
        sys.exit(f"{out} does not have the files of {wheel}")


if __name__ == "__main__":
    recompress(*sys.argv[1:])
    require_same(*sys.argv[1:])
