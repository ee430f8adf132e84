"""``oncelog token`` against a broker with SASL: secrets are shown once, and what they open."""

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port

MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
KEY: Final = "sesame-open"


class TokenProcess(OncelogProcess):
    """A broker with tokens and the users admin and bob."""

    def __init__(self, directory: Path) -> None:
        port = free_port()
        prefix = "listener.name.sasl_plaintext"
        settings = [
            f"listeners=SASL_PLAINTEXT://127.0.0.1:{port}",
            f"{prefix}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f'{prefix}.plain.sasl.jaas.config={MODULE} required user_admin="admin" user_bob="bob";',
            f"delegation.token.secret.key={KEY}",
        ]
        super().__init__(directory, settings, port)


class AsUser(Oncelog):
    """The command with a file of properties."""

    def __init__(self, address: str, properties: Path) -> None:
        super().__init__(address)
        self.environment["ONCELOG_COMMAND_CONFIG"] = str(properties)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenProcess]:
    with TokenProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


def user(broker: TokenProcess, directory: Path, name: str) -> AsUser:
    path = directory / f"{name}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={name}\nsasl.password={name}\n"
    )
    return AsUser(broker.address, path)


@pytest.fixture
def admin(broker: TokenProcess, tmp_path: Path) -> Iterator[AsUser]:
    command = user(broker, tmp_path, "admin")
    yield command
    for token in command.json("token list"):
        command(f"token expire {token['token']}")


def test_token_in_a_file_opens_the_broker_until_it_is_removed(
    broker: TokenProcess, admin: AsUser, tmp_path: Path
) -> None:
    file = tmp_path / "job.properties"
    created = admin.json(f"token create --max-lifetime 2h --file {file}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "hmac" not in created
    (listed,) = admin.json("token list")
    assert {key: created[key] for key in listed} == listed
    assert (listed["owner"], listed["requester"], listed["renewers"]) == ("User:admin", "User:admin", [])
    job = AsUser(broker.address, file)
    job("topic create of-the-job")
    assert "of-the-job" in [each["topic"] for each in job.json("topic list")]
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in job.fails("token list")
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in job.fails("token create")
    admin(f"token expire {created['token']}")
    said = job.fails("topic list")
    assert "Authentication failed" in said
    assert "has the delegation token expired" in said


def test_secret_is_printed_once_and_only_by_the_command_that_creates(admin: AsUser) -> None:
    created = admin.json("token create --renewer User:bob --max-lifetime 90m")
    assert len(created["hmac"]) == 88
    assert created["renewers"] == ["User:bob"]
    for words in ("token list", "token list --format json", f"token renew {created['token']}"):
        assert created["hmac"] not in admin(words)


def test_renewer_sees_and_renews_a_token_and_others_do_not(broker: TokenProcess, admin: AsUser, tmp_path: Path) -> None:
    bob = user(broker, tmp_path, "bob")
    shared = admin.json("token create --renewer User:bob --max-lifetime 2d")
    own = admin.json("token create")
    assert [each["token"] for each in bob.json("token list --owner User:bob")] == [shared["token"]]
    (renewed,) = bob.json(f"token renew {shared['token']} --for 30m")
    assert renewed["expires"] < shared["expires"]
    (expires,) = bob.json(f"token expire {shared['token']} --in 5m")
    assert expires["expires"] < renewed["expires"]
    assert len(admin.json("token list")) == 2
    of_others = [each["token"] for each in bob.json("token list")]
    assert own["token"] in of_others, "without an authorizer every client sees all tokens"
    assert "DELEGATION_TOKEN_OWNER_MISMATCH" in bob.fails(f"token renew {own['token']}")


@pytest.mark.parametrize(
    "words",
    [
        "token create --owner alice",
        "token create --renewer :bob",
        "token create --max-lifetime 2",
        "token create --max-lifetime 2weeks",
        "token create --file /nowhere/token",
        "token renew",
        "token expire id --in -5m",
    ],
)
def test_wrong_usage_is_refused_before_anything_is_sent(admin: AsUser, words: str) -> None:
    admin.fails(words, exit_code=2)
    assert admin.json("token list") == []


def test_file_that_exists_is_kept_and_refused(admin: AsUser, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("kept")
    assert "cannot be created" in admin.fails(f"token create --file {file}", exit_code=2)
    assert file.read_text() == "kept"
    other = tmp_path / "new"
    assert "INVALID_PRINCIPAL_TYPE" in admin.fails(f"token create --renewer Group:g --file {other}")
    assert not other.exists()


def test_unknown_token_is_refused(admin: AsUser) -> None:
    assert "DELEGATION_TOKEN_NOT_FOUND" in admin.fails("token renew ua5cey91Qx2ffVPJ39yBcw")


def test_broker_without_a_key_says_so(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path) as process:
        assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in Oncelog(process.address).fails("token list")


def test_log_of_the_broker_contains_no_secret(broker: TokenProcess, admin: AsUser) -> None:
    secret = admin.json("token create")["hmac"]
    done: subprocess.CompletedProcess[str] = admin.run("token list")
    assert secret not in done.stdout + done.stderr
    written = [path.read_text(errors="replace") for path in broker.directory.rglob("*.log") if "data" not in path.parts]
    assert any("Delegation token" in text for text in written)
    assert not [text for text in written if secret in text or KEY in text]
