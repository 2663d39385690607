#!/usr/bin/env python3
"""Writes tests/golden/safetensors: small files, good and bad, on which the fuzzer starts and which
safetensors_test.cpp reads. The names say what the reader must do: good_* are read, bad_* are refused.
Plain byte strings, so that no library's idea of the format comes between."""
import pathlib

FOLDER = pathlib.Path(__file__).parent / "golden" / "safetensors"


def file(header: str, data: bytes = b"", pad: bool = True, length: int | None = None) -> bytes:
    text = header.encode()
    if pad:
        text += b" " * (-len(text) % 8)
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(name: str, dtype: str, shape: str, begin: int, end: int) -> str:
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'


two = entry("b", "F32", "[2]", 0, 8) + "," + entry("a", "F16", "[3]", 8, 14)
two_data = bytes.fromhex("0000803f00000040003c00400042")
meta = '"__metadata__":{"format":"pt"}'

FILES = {
    "good_two": file("{" + meta + "," + two + "}", two_data),
    "good_no_tensors": file("{}"),
    "good_unpadded": file("{" + two + "}", two_data, pad=False),
    "good_rank_0_and_empty": file(
        "{" + entry("none", "F32", "[0,7]", 0, 0) + "," + entry("one", "I64", "[]", 0, 8) + "}",
        bytes(8)),
    "good_unicode": file("{" + entry("\u00fcber.\u6ce8\u610f", "F4", "[2,3]", 0, 3) + "}", b"abc"),
    "good_escaped": file(
        "{" + entry("a\\n\\u00e9\\ud83d\\ude00", "BOOL", "[1]", 0, 1) + "}", b"\1"),
    "good_unknown_field": file(
        '{"a":{"note":{"x":[1,[2,{"y":null}]]},"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b"\7"),
    "bad_overlap": file(
        "{" + entry("a", "F32", "[3]", 0, 12) + "," + entry("b", "F32", "[3]", 8, 20) + "}",
        bytes(20)),
    "bad_gap": file(
        "{" + entry("a", "F32", "[1]", 0, 4) + "," + entry("b", "F32", "[1]", 8, 12) + "}",
        bytes(12)),
    "bad_truncated": file("{" + two + "}", two_data)[:-3],
    "bad_truncated_header": file("{" + two + "}", two_data)[:40],
    "bad_trailing_bytes": file("{" + two + "}", two_data + b"more"),
    "bad_lying_length": file("{" + two + "}", two_data, length=99_999_999),
    "bad_giant_length": file("{" + two + "}", two_data, length=2**64 - 1),
    "bad_lying_shape": file("{" + entry("a", "F64", "[100,100]", 0, 8) + "}", bytes(8)),
    "bad_overflowing_shape": file(
        "{" + entry("a", "F32", "[4294967296,4294967296]", 0, 0) + "}"),
    "bad_same_name_twice": file(
        "{" + entry("a", "U8", "[1]", 0, 1) + "," + entry("a", "U8", "[1]", 1, 2) + "}", b"xy"),
    "bad_deep": file('{"a":{"x":' + "[" * 200 + "]" * 200 + "}}"),
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in FILES.items():
        assert len(content) < 1000, name
        (FOLDER / f"{name}.safetensors").write_bytes(content)
