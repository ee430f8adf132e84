"""``oncelog user`` and ``--command-config`` on a broker whose only listener has SASL."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.processes import LIMIT_SECONDS, OncelogProcess, child_environment, free_port

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class SaslProcess(OncelogProcess):
    """A broker with one user of PLAIN, whose properties are in ``admin``."""

    def __init__(self, directory: Path) -> None:
        port = free_port()
        prefix = "listener.name.sasl_plaintext"
        settings = [
            f"listeners=SASL_PLAINTEXT://127.0.0.1:{port}",
            f"{prefix}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f'{prefix}.plain.sasl.jaas.config={MODULE} user_admin="admin-secret";',
        ]
        super().__init__(directory, settings, port)
        self.admin = self.properties("PLAIN", "admin", "admin-secret")

    def properties(self, mechanism: str, user: str, password: str) -> Path:
        path = self.directory / f"{user}-{password}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.username={user}\nsasl.password={password}\nclient.id=x\n"
        )
        return path

    def run(self, *words: object, config: Path | None = None, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        environment: Mapping[str, str] = {
            **child_environment(),
            "ONCELOG_BOOTSTRAP": self.address,
            **({} if config is None else {"ONCELOG_COMMAND_CONFIG": str(config)}),
        }
        command = [sys.executable, "-m", "oncelog", *map(str, words)]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=environment, timeout=LIMIT_SECONDS
        )


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslProcess]:
    with SaslProcess(tmp_path_factory.mktemp("sasl")) as process:
        yield process


def test_users_are_added_listed_and_removed(process: SaslProcess, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("from a file\n")
    for words, stdin in (
        (("user", "add", "al ice"), "from standard input\n"),
        (
            ("user", "add", "al ice", "--mechanism", "SCRAM-SHA-256", "--iterations", 8192, "--password-file", secret),
            "",
        ),
    ):
        assert process.run(*words, config=process.admin, stdin=stdin).returncode == 0
    listed = process.run("user", "list", "--format", "json", config=process.admin)
    assert {(each["mechanism"], each["iterations"]) for each in json.loads(listed.stdout)} == {
        ("SCRAM-SHA-512", 4096),
        ("SCRAM-SHA-256", 8192),
    }
    by_512 = process.properties("SCRAM-SHA-512", "al ice", "from standard input")
    by_256 = process.properties("SCRAM-SHA-256", "al ice", "from a file")
    assert process.run("produce", "t", "--command-config", by_512, stdin="one\n").returncode == 0
    consumed = process.run("consume", "t", "--from", "beginning", "--until-end", "--command-config", by_256)
    assert "one" in consumed.stdout, consumed.stderr
    assert process.run("user", "remove", "al ice", "--mechanism", "SCRAM-SHA-256", config=process.admin).returncode == 0
    refused = process.run("topic", "list", config=by_256)
    assert refused.returncode == 1
    assert "Authentication failed" in refused.stderr
    assert "--command-config" in refused.stderr
    assert process.run("topic", "list", config=by_512).returncode == 0
    assert process.run("user", "remove", "al ice", config=process.admin).returncode == 0
    assert "RESOURCE_NOT_FOUND" in process.run("user", "remove", "al ice", config=process.admin).stderr


def test_command_without_login_is_pointed_to_the_setting(process: SaslProcess) -> None:
    refused = process.run("topic", "list", "--timeout", 5)
    assert refused.returncode == 3
    assert "security.protocol=SASL_PLAINTEXT" in refused.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("security.protocol=SSL", "expected PLAINTEXT or SASL_PLAINTEXT"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN", "sasl_username is missing"),
        ("sasl.password=hunter2", "no effect without"),
    ],
)
def test_command_config_that_cannot_work_is_wrong_usage(
    process: SaslProcess, tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    refused = process.run("topic", "list", "--command-config", path)
    assert refused.returncode == 2
    assert why in refused.stderr
    assert "hunter2" not in refused.stderr


def test_settings_of_tls_in_a_command_config_are_warned_about(process: SaslProcess, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(process.admin.read_text() + "ssl.truststore.location=x\n")
    done = process.run("topic", "list", "--command-config", path)
    assert done.returncode == 0
    assert "no effect: ssl.truststore.location" in done.stderr
