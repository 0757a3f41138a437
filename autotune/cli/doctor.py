"""`autotune doctor`."""

from __future__ import annotations

import click

from autotune.cli.options import db_option, json_option
from autotune.cli.output import print_json, table


@click.command("doctor", epilog="Example: autotune doctor --db results.sqlite")
@db_option
@json_option
def doctor_command(db: str | None, as_json: bool) -> None:
    """Say which GPU, driver and toolkit are here, what will work with them, and how to mend the rest."""
    from autotune.doctor import diagnose

    findings = diagnose(db)
    if as_json:
        print_json(findings)
        return
    table("", ["", "what", "found"], [("ok" if f.ok else "--", f.name, f.detail) for f in findings])
    cures = [finding for finding in findings if not finding.ok and finding.cure]
    if cures:
        click.echo("\nTo mend:")
    for finding in cures:
        click.echo(f"  {finding.name}: {finding.cure}")
