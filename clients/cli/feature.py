"""``oncelog feature``: which features the cluster uses, and at which level."""

import click

from oncelog.clients.admin.features import FeatureUpdate, describe_features, update_features
from oncelog.clients.cli.lazy_group import LazyGroup
from oncelog.clients.cli.session import Session, example, with_session

_COLUMNS = ("feature", "lowest", "highest", "finalized", "epoch")


@click.group(cls=LazyGroup)
def feature() -> None:
    """Describe features, and raise and lower their levels."""


@feature.command(epilog=example("oncelog feature describe"))
@with_session()
def describe(session: Session) -> None:
    """Show the levels that the controller supports, and the finalised level of each feature."""
    described = session.run(describe_features)
    rows = [
        {
            "feature": each.feature,
            "lowest": each.lowest,
            "highest": each.highest,
            "finalized": each.finalized,
            "epoch": described.epoch,
        }
        for each in described.features
    ]
    session.show_rows(rows, _COLUMNS, none="No features: the controller supports none.")


@feature.command(epilog=example("oncelog feature upgrade transaction.version 2"))
@click.argument("name", metavar="NAME")
@click.argument("level", type=click.IntRange(min=0), metavar="LEVEL")
@click.option("--dry-run", is_flag=True, help="Validate the change without making it.")
@with_session()
def upgrade(session: Session, name: str, level: int, dry_run: bool) -> None:
    """Raise the level of a feature. Every broker must support it."""
    if level == 0:
        raise click.BadParameter(f"`oncelog feature downgrade {name} 0` turns the feature off", param_hint="LEVEL")
    _update(session, name, FeatureUpdate(level), dry_run)


@feature.command(epilog=example("oncelog feature downgrade transaction.version 1 --dry-run"))
@click.argument("name", metavar="NAME")
@click.argument("level", type=click.IntRange(min=0), metavar="LEVEL")
@click.option("--unsafe", is_flag=True, help="Lower the level even if data is lost.")
@click.option("--dry-run", is_flag=True, help="Validate the change without making it.")
@with_session()
def downgrade(session: Session, name: str, level: int, unsafe: bool, dry_run: bool) -> None:
    """Lower the level of a feature; 0 turns it off.

    Without eligible.leader.replicas.version, partitions that wait for a replica may be led by one that lacks
    acknowledged records. So while any waits, or has eligible replicas, they are listed, and --unsafe is needed.
    """
    _update(session, name, FeatureUpdate(level, allow_downgrade=True, unsafe=unsafe), dry_run)


def _update(session: Session, name: str, update: FeatureUpdate, dry_run: bool) -> None:
    outcomes = session.change(lambda cluster: update_features(cluster, {name: update}, validate_only=dry_run))
    session.show_outcomes("feature", "valid" if dry_run else "ok", outcomes)
