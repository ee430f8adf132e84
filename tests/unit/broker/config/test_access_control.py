"""The settings of access control: who is a super user, and what the broker does not start with."""

import pytest

from oncelog.broker.config.access_control import super_users
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.sources import load_config

ACL_AUTHORIZER = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
STANDARD = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize("authorizer", [ACL_AUTHORIZER, STANDARD])
def test_super_users_are_separated_by_semicolons(authorizer: str) -> None:
    loaded = load_config(overrides=[authorizer, "super.users=User:CN=a,OU=b; User:ANONYMOUS ;User:x:y;"])
    assert super_users(loaded.config) == {("User", "CN=a,OU=b"), ("User", "ANONYMOUS"), ("User", "x:y")}
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["authorizer.class.name=com.acme.Mine"], "authorizer.class.name=com.acme.Mine is refused"),
        (["super.users=User:a"], "super.users has no effect without authorizer.class.name"),
        (["allow.everyone.if.no.acl.found=true"], "allow.everyone.if.no.acl.found has no effect without"),
        ([ACL_AUTHORIZER, "super.users=alice"], "super.users has 'alice': expected type:name, such as User:alice"),
        ([ACL_AUTHORIZER, "super.users=User:"], "super.users has 'User:'"),
    ],
)
def test_access_control_that_would_not_be_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(overrides=overrides)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        (["super.users=User:a,User:b"], "super.users has a comma before a principal"),
        ([], "super.users is empty"),
        (["zookeeper.connect=z:1", "super.users=User:a"], "super.users has no User:ANONYMOUS"),
    ],
)
def test_probable_mistake_is_a_warning_that_names_the_setting(overrides: list[str], warning: str) -> None:
    warnings = load_config(overrides=[ACL_AUTHORIZER, *overrides]).warnings
    assert [text for text in warnings if text.startswith(warning)]


@pytest.mark.parametrize(
    "overrides",
    [
        ["super.users=User:a"],
        ["zookeeper.connect=z:1", "super.users=User:ANONYMOUS"],
        ["zookeeper.connect=z:1", "super.users=User:a", "security.inter.broker.protocol=SASL_PLAINTEXT"],
    ],
)
def test_brokers_that_may_act_for_each_other_are_no_warning(overrides: list[str]) -> None:
    assert load_config(overrides=[ACL_AUTHORIZER, *overrides]).warnings == ()
