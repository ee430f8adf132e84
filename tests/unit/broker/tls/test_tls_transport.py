"""TLS between a socket and a connection: nothing is lost, doubled or out of order, and nothing grows without bound."""

import asyncio
import ssl
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from oncelog.broker.tls.tls_transport import TlsShared
from tests.certificates import Certificate, make_certificate
from tests.unit.broker.tls.secured_end import SecuredEnd, client_of, contexts

VERSIONS: Final = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
MEBIBYTE: Final = 1 << 20
RNG: Final = Random(1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), "localhost", "DNS:localhost")


async def secured(certificate: Certificate, version: ssl.TLSVersion = VERSIONS[-1], **options: Any) -> SecuredEnd:
    end = SecuredEnd(*contexts(certificate, version), **options)
    await end.shake_hands()
    return end


@pytest.mark.parametrize("version", VERSIONS)
async def test_requests_and_responses_pass(certificate: Certificate, version: ssl.TLSVersion) -> None:
    end = await secured(certificate, version)
    end.send(b"a request")
    assert end.upper.received == b"a request"
    end.transport.write(b"a response")
    end.transport.writelines([b" and", b"", b" another"])
    end.carry_back()
    assert end.client.read_all() == b"a response and another"
    assert end.certificates == [None]


@pytest.mark.parametrize("seed", range(8))
async def test_stream_in_any_pieces_arrives_whole_and_is_counted(certificate: Certificate, seed: int) -> None:
    rng = Random(seed)
    end = await secured(certificate, VERSIONS[seed % 2], buffer_size=rng.choice([100, 5_000, 65_536]))
    handshake = end.upper.overhead
    sent, encrypted = bytearray(), bytearray()
    for _ in range(12):
        data = rng.randbytes(rng.choice([1, 20, 5_000, 40_000]))
        sent += data
        end.client.tls.write(data)
        encrypted += end.client.outgoing.read()
    while encrypted:
        size = rng.choice([1, 3, 5, 6, 100, 20_000])
        end.deliver(bytes(encrypted[:size]))
        del encrypted[:size]
        is_whole = end.upper.held == 0
        assert is_whole or encrypted
    assert end.upper.received == sent
    assert end.upper.overhead > handshake


async def test_part_of_a_record_is_held(certificate: Certificate) -> None:
    end = await secured(certificate)
    end.client.tls.write(b"two requests")
    data = end.client.outgoing.read()
    end.deliver(data[:-1])
    assert (end.upper.received, end.upper.held) == (b"", len(data) - 1)
    end.deliver(data[-1:])
    assert (end.upper.received, end.upper.held) == (b"two requests", 0)


async def test_connection_that_pauses_receives_nothing_before_it_resumes(certificate: Certificate) -> None:
    end = await secured(certificate, buffer_size=1_000)
    end.upper.pauses_after = 2
    data = RNG.randbytes(16_000)
    end.send(data)
    assert end.upper.received == data[:2_000]
    assert end.upper.held > 0
    assert not end.socket.is_reading
    end.transport.resume_reading()
    end.transport.pause_reading()
    await asyncio.sleep(0)
    assert len(end.upper.received) == 2_000
    end.transport.resume_reading()
    await asyncio.sleep(0)
    assert end.upper.received == data
    assert end.socket.is_reading


async def test_large_response_is_encrypted_as_the_socket_takes_it(certificate: Certificate) -> None:
    end = await secured(certificate)
    end.socket.room = 100_000
    data = RNG.randbytes(5 * MEBIBYTE)
    end.transport.write(data)
    assert end.upper.is_paused
    assert len(end.socket.waiting) < MEBIBYTE, "what the socket does not take is not encrypted"
    assert end.transport.get_write_buffer_size() >= len(data) - 200_000
    received = b""
    for _ in range(100):
        end.socket.make_room(300_000)
        await asyncio.sleep(0)
        end.carry_back()
        received += end.client.read_all()
        if not end.upper.is_paused:
            break
    assert received == data
    assert end.transport.get_write_buffer_size() == 0


async def test_fast_socket_gets_a_large_response_in_several_turns(certificate: Certificate) -> None:
    end = await secured(certificate)
    data = RNG.randbytes(4 * MEBIBYTE)
    end.transport.write(data)
    end.transport.write(b"the next")
    assert len(end.socket.taken) < 2 * MEBIBYTE
    for _ in range(5):
        await asyncio.sleep(0)
    end.carry_back()
    assert end.client.read_all() == data + b"the next"


async def test_limit_of_zero_resumes_when_all_is_sent(certificate: Certificate) -> None:
    end = await secured(certificate)
    end.socket.room = 0
    end.transport.write(b"x" * 1_000)
    assert not end.upper.is_paused
    end.transport.set_write_buffer_limits(high=0)
    assert end.upper.is_paused
    end.socket.make_room(500)
    assert end.upper.is_paused
    end.socket.make_room(MEBIBYTE)
    assert not end.upper.is_paused


async def test_close_sends_what_was_written_and_that_it_was_all(certificate: Certificate) -> None:
    end = await secured(certificate)
    data = RNG.randbytes(3 * MEBIBYTE)
    end.transport.write(data)
    end.transport.close()
    assert not end.socket.is_closed
    for _ in range(5):
        await asyncio.sleep(0)
    assert end.socket.is_closed
    end.carry_back()
    assert end.client.read_all() == data
    assert end.client.tls.read(1) == b"", "its end"


async def test_abort_ends_the_socket_at_once(certificate: Certificate) -> None:
    end = await secured(certificate)
    end.socket.room = 0
    end.transport.write(b"lost")
    end.transport.abort()
    assert end.socket.is_aborted
    end.deliver(b"more")
    assert not end.upper.received


async def test_client_that_says_goodbye_is_closed(certificate: Certificate) -> None:
    end = await secured(certificate)
    end.client.tls.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        end.client.tls.unwrap()
    end.deliver(end.client.outgoing.read())
    assert end.upper.received == b"last"
    assert end.socket.is_closed


async def test_record_that_was_changed_is_refused(certificate: Certificate) -> None:
    end = await secured(certificate)
    end.client.tls.write(b"good")
    end.client.tls.write(b"changed")
    data = bytearray(end.client.outgoing.read())
    data[-1] ^= 1
    end.deliver(bytes(data))
    assert end.upper.received == b"good"
    assert "cannot be decrypted" in end.upper.refusals[0]


@pytest.mark.parametrize("hello", [b"\x00\x00\x00\x15\x00\x12\x00\x03", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 40])
async def test_client_without_tls_gets_an_alert_and_a_reason(certificate: Certificate, hello: bytes) -> None:
    end = SecuredEnd(*contexts(certificate, VERSIONS[-1]))
    end.deliver(hello)
    await asyncio.sleep(0)
    assert "does not speak TLS" in end.upper.refusals[0]
    assert not end.socket.taken or end.socket.taken[0] == 21, "an alert"
    assert not end.certificates


async def test_client_that_does_not_trust_the_broker_is_named_so(certificate: Certificate, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "other", "DNS:localhost")
    server, _ = contexts(certificate, VERSIONS[-1])
    end = SecuredEnd(server, client_of(other.certificate))
    end.client.shake_hands()
    end.deliver(end.client.outgoing.read())
    await asyncio.sleep(0)
    end.carry_back()
    with pytest.raises(ssl.SSLCertVerificationError):
        end.client.tls.do_handshake()
    end.deliver(end.client.outgoing.read())
    await asyncio.sleep(0)
    assert "does not trust the certificate of this broker" in end.upper.refusals[0]


async def test_client_that_is_refused_by_its_certificate_is_served_nothing(certificate: Certificate) -> None:
    end = SecuredEnd(*contexts(certificate, VERSIONS[-1]))
    end.refusal = "no rule makes a user of it"
    await end.shake_hands()
    assert end.upper.refusals == ["no rule makes a user of it"]


async def test_silent_client_is_refused_in_time(certificate: Certificate) -> None:
    shared = TlsShared(handshake_seconds=0.01, failure_delay_seconds=0)
    end = SecuredEnd(*contexts(certificate, VERSIONS[-1]), shared=shared)
    await asyncio.sleep(0.02)
    assert "oncelog.authentication.timeout.ms" in end.upper.refusals[0]


async def test_client_that_is_secured_has_no_deadline_left(certificate: Certificate) -> None:
    shared = TlsShared(handshake_seconds=0.2, failure_delay_seconds=0)
    end = SecuredEnd(*contexts(certificate, VERSIONS[-1]), shared=shared)
    await end.shake_hands()
    await asyncio.sleep(0.3)
    assert not end.upper.refusals


async def test_socket_is_not_read_while_a_handshake_waits_for_its_turn(certificate: Certificate) -> None:
    end = SecuredEnd(*contexts(certificate, VERSIONS[-1]))
    end.client.shake_hands()
    end.deliver(end.client.outgoing.read())
    assert not end.socket.is_reading
    assert not end.socket.taken
    await asyncio.sleep(0)
    assert end.socket.is_reading
    assert end.socket.taken


async def test_connection_that_is_lost_in_its_handshake_takes_no_turn(certificate: Certificate) -> None:
    end = SecuredEnd(*contexts(certificate, VERSIONS[-1]))
    end.client.shake_hands()
    end.deliver(end.client.outgoing.read())
    end.transport.connection_lost(None)
    await asyncio.sleep(0)
    assert end.upper.is_lost
    assert not end.socket.taken
