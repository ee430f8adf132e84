"""A broker process with TLS, SCRAM and access control lists, whose clients get the rights that they need."""

from pathlib import Path
from typing import Any, Final

from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port

PASSWORD: Final = "wonderland 1"
MECHANISM: Final = "SCRAM-SHA-512"
MODULE: Final = "org.apache.kafka.common.security"


class SecuredProcess(OncelogProcess):
    """A broker whose listener has TLS and SASL, and whose lists allow nothing at first."""

    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.certificates = directory / "certificates"
        Oncelog("")(f"tls init {self.certificates}")
        settings = [
            f"listeners=SASL_SSL://localhost:{port}",
            f"ssl.keystore.location={self.certificates / 'broker-localhost.pem'}",
            f"sasl.enabled.mechanisms={MECHANISM},PLAIN",
            f'sasl.jaas.config={MODULE}.plain.PlainLoginModule required user_admin="admin";',
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:admin",
        ]
        super().__init__(directory, settings, port)
        self.address = f"localhost:{port}"
        self.authority = str(self.certificates / "ca.pem")

    def start(self, **options: Any) -> None:
        super().start(**options)
        login = self.directory / "admin.properties"
        login.write_text(
            f"security.protocol=SASL_SSL\nssl.truststore.location={self.authority}\nssl.truststore.type=PEM\n"
            "sasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=admin\n"
        )
        self.admin = Oncelog(self.address)
        self.admin.environment["ONCELOG_COMMAND_CONFIG"] = str(login)

    def add_user(self, name: str) -> None:
        """Add a user without rights."""
        self.admin(f"user add {name} --mechanism {MECHANISM}", text=f"{PASSWORD}\n")

    def prepare_user(self, name: str) -> None:
        """Make a user, its topic, and the rights of a transactional producer and a consumer in a group."""
        self.admin(f"topic create {name} --partitions 3")
        self.add_user(name)
        self.admin(f"acl add User:{name} read write --topic {name}")
        self.admin(f"acl add User:{name} read --group {name} --prefixed")
        self.admin(f"acl add User:{name} write --transactional-id {name}")

    def librdkafka(self, name: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority,
            "sasl.mechanisms": MECHANISM,
            "sasl.username": name,
            "sasl.password": PASSWORD,
        }

    def java(self, name: str) -> Path:
        path = self.directory / f"{name}.properties"
        path.write_text(
            f"security.protocol=SASL_SSL\nssl.truststore.location={self.authority}\nssl.truststore.type=PEM\n"
            f"sasl.mechanism={MECHANISM}\n"
            f'sasl.jaas.config={MODULE}.scram.ScramLoginModule required username="{name}" password="{PASSWORD}";\n'
        )
        return path
