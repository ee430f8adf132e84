"""PEM: which blocks a text has, and whether it is a store and nothing else."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from cryptography.x509 import load_pem_x509_certificate

from oncelog.protocol.tls.pem import parse_pem, unfold
from oncelog.protocol.tls.stores import StoreError, read_key_store, read_trust_store, require_nothing_else
from tests.certificates import make_authority, without_bytes

SECRET = "wonderland"
ROOT = make_authority("root")
OWN = ROOT.issue("own")
PEM = ROOT.certificate_pem
LINES = PEM.count(b"\n")
ON_ONE_LINE = b" ".join(PEM.split())


def in_audit_log(client_id: bytes) -> bytes:
    return json.dumps({"time": 1, "client_id": client_id.decode()}).encode() + b"\n"


@pytest.mark.parametrize(
    "data",
    [
        in_audit_log(PEM),
        in_audit_log(ON_ONE_LINE),
        b"2026-11-29 INFO a request of client " + PEM,
        b"2026-11-29 INFO a request of client '" + ON_ONE_LINE + b"' at 127.0.0.1\n",
        ON_ONE_LINE,
        b" " + PEM,
        PEM.replace(b"-----END", b"x-----END"),
        PEM.replace(b"END CERTIFICATE-----", b"END CERTIFICATE-----x"),
        PEM.replace(b"BEGIN CERTIFICATE-----\n", b"BEGIN CERTIFICATE-----"),
        b"-----BEGIN CERTIFICATE-----\n" + b"".join(PEM.split()[2:-2]) + b"\n-----END CERTIFICATE-----\n",
        PEM.replace(b"END CERTIFICATE", b"END PRIVATE KEY"),
        PEM[:-40],
    ],
    ids=without_bytes,
)
def test_text_in_another_form_has_no_block_and_is_no_store(data: bytes) -> None:
    assert parse_pem(data).blocks == ()
    with pytest.raises(StoreError):
        read_trust_store(data)


@pytest.mark.parametrize(
    "data",
    [PEM, PEM.replace(b"\n", b"\r\n"), PEM.rstrip(), b"Certificate:\n    Data:\n" + PEM],
    ids=["plain", "line breaks of Windows", "without the last line break", "with a preamble"],
)
def test_block_in_lines_of_its_own_is_read(data: bytes) -> None:
    assert read_trust_store(data) == (PEM,)


def test_damaged_block_beside_a_good_one_is_refused_by_its_line() -> None:
    with pytest.raises(StoreError, match=f"from line {LINES + 1} on: .* 76 characters"):
        read_trust_store(PEM + PEM.replace(b"\nM", b"\n!"))


def test_store_that_openssl_converted_from_pkcs12_is_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "store.p12").write_bytes(OWN.pkcs12(SECRET))
    command = ["openssl", "pkcs12", "-in", str(tmp_path / "store.p12"), "-nodes", "-passin", f"pass:{SECRET}"]
    data = subprocess.run(command, check=True, capture_output=True).stdout
    assert b"Bag Attributes" in data
    require_nothing_else(data)
    assert len(read_key_store(data).certificates) == 2
    require_nothing_else(b"# our authority\n\n" + PEM + b"# the old one\r\n" + PEM)
    require_nothing_else(OWN.pkcs12(SECRET))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"hello\n" + PEM, 1),
        (PEM + b"\n2026-11-29 INFO started\n", LINES + 2),
        (in_audit_log(PEM) + b"\n" + PEM, 1),
        (PEM + PEM[1:], LINES + 1),
    ],
    ids=without_bytes,
)
def test_file_with_more_than_a_store_is_refused_by_its_line(data: bytes, line: int) -> None:
    with pytest.raises(StoreError, match=re.escape(f"has more than a store in line {line}:")):
        require_nothing_else(data)


def test_text_of_a_setting_on_one_line_is_read() -> None:
    text = f"{ON_ONE_LINE.decode()} {ON_ONE_LINE.decode()}"
    blocks = parse_pem(unfold(text).encode()).blocks
    assert [load_pem_x509_certificate(block.pem) for block in blocks] == [ROOT.certificate] * 2
    assert unfold(PEM.decode()).strip() == PEM.decode().strip()
