"""The reference page of the settings, ``docs/configuration.md``, printed from the tables that the broker runs by."""

from collections.abc import Iterable, Iterator, Mapping

from oncelog.broker.config.broker_config import BROKER_SETTINGS
from oncelog.broker.config.settings import Setting
from oncelog.broker.config.topic_config import SYNONYMS, TOPIC_SETTINGS

_INTRODUCTION = """\
# Configuration

This page is printed from the tables in `broker/config/broker_config.py` and `broker/config/topic_config.py`
(`python -m oncelog.broker.tools.config_page > docs/configuration.md`).

Keys and defaults are those of Apache Kafka; keys that begin with `oncelog.` are ours. Later sources win: defaults,
`server.properties` (`--config`), `KAFKA_CFG_*` and `KAFKA_*` environment variables (`_` for a dot, `__` for an
underscore, `___` for a hyphen), `--set key=value`.
"""


def page() -> str:
    """The whole page."""
    lines = [_INTRODUCTION, "## Settings of a broker", ""]
    lines += _table((s for s in BROKER_SETTINGS.values() if not s.unused), with_embedded=True)
    lines += ["", "A broker that is alone, on the embedded metadata store, has the default in brackets.", ""]
    lines += ["## Settings of a topic", ""]
    lines += _table((s for s in TOPIC_SETTINGS.values() if not s.unused), with_embedded=False)
    lines += ["", "## Accepted, without effect", ""]
    lines += _unused(BROKER_SETTINGS, "of a broker")
    lines += _unused(TOPIC_SETTINGS, "of a topic")
    return "\n".join(lines) + "\n"


def _table(settings: Iterable[Setting], *, with_embedded: bool) -> Iterator[str]:
    last = "" if with_embedded else " the broker's setting |"
    yield f"| key | default | value | meaning |{last}"
    yield "|--|--|--|--|" + ("" if with_embedded else "--|")
    for setting in settings:
        default = _code(setting.format(setting.default))
        if with_embedded and setting.embedded is not None:
            default += f" ({_code(setting.format(setting.embedded))})"
        row = f"| `{setting.key}` | {default} | {setting.expected} | {setting.doc} |"
        if not with_embedded:
            row += " " + ", ".join(f"`{synonym.key}`" for synonym in SYNONYMS.get(setting.key, ())) + " |"
        yield row


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def _unused(settings: Mapping[str, Setting], owner: str) -> Iterator[str]:
    for setting in settings.values():
        if setting.unused:
            yield f"- `{setting.key}` {owner}: {setting.unused}"


if __name__ == "__main__":
    print(page(), end="")
