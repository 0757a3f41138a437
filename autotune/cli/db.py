"""`autotune db`: info, merge, export, import, migrate, prune, check."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.group import NearestGroup
from autotune.cli.options import db_option, json_option, must_exist
from autotune.cli.output import print_json, table


@click.group(
    "db",
    cls=NearestGroup,
    epilog="""\b
Examples:
  autotune db info
  autotune db merge node1.sqlite node2.jsonl.gz --db all.sqlite
  autotune db export results.jsonl.gz --kernel sgemm""",
)
def db_command() -> None:
    """Look into, merge, export, import, migrate or prune the database of results."""


@db_command.command("info", epilog="Example: autotune db info --db results.sqlite")
@db_option
@json_option
def info(db: str | None, as_json: bool) -> None:
    """Say where the database is and what it holds."""
    from autotune.store import open_store

    must_exist(db)
    with open_store(db) as store:
        found = store.info()
    if as_json:
        print_json(found)
        return
    click.echo(
        f"{found.database}: schema {found.schema}, {found.trials} trials, {found.size_bytes / 1e6:.1f} MB"
    )
    for title, counts in (
        ("status", found.by_status),
        ("study", found.by_study),
        ("device", found.by_device),
    ):
        if counts:
            click.echo("")
            table("", [title, "trials"], counts.items())


@db_command.command("merge", epilog="Example: autotune db merge node1.sqlite node2.jsonl.gz --db all.sqlite")
@click.argument("sources", nargs=-1, required=True, metavar="FILE|URL...")
@db_option
@json_option
def merge(sources: tuple[str, ...], db: str | None, as_json: bool) -> None:
    """Add records of other databases or exported files.

    Doing it twice changes nothing.
    """
    from autotune.store import open_store

    with open_store(db) as store:
        reports = {source: store.merge(source) for source in sources}
    if as_json:
        print_json(reports)
        return
    table("", ["from", "added", "already there"], [(s, r.added, r.already_there) for s, r in reports.items()])


@db_command.command("export", epilog="Example: autotune db export results.jsonl.gz --study my-study")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--study", metavar="NAME", help="Only this study.")
@click.option("--kernel", metavar="NAME", help="Only this kernel.")
@db_option
@json_option
def export(path: Path, study: str | None, kernel: str | None, db: str | None, as_json: bool) -> None:
    """Write records as lines of JSON.

    They are compressed when the name ends in .gz.
    """
    from autotune.store import RecordQuery, open_store

    must_exist(db)
    with open_store(db) as store:
        written = store.export_jsonl(path, RecordQuery(study=study, kernel=kernel))
    if as_json:
        print_json({"path": path, "records": written})
    else:
        click.echo(f"{path}: {written} records")


@db_command.command(
    "import",
    epilog="""\b
Examples:
  autotune db import results.jsonl.gz
  autotune db import gemm_RTX_3090.json.gz""",
)
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@db_option
@json_option
def import_(path: Path, db: str | None, as_json: bool) -> None:
    """Add the records of an exported file, all or none.

    Cache files of Kernel Tuner become replayed records, which never pass for measured ones.
    """
    from autotune.replay.read import is_cache, read_tables
    from autotune.store import open_store

    recorded = (
        [record for table in read_tables(path) for record in table.records()] if is_cache(path) else None
    )
    with open_store(db) as store:
        report = store.import_jsonl(path) if recorded is None else store.add_new(recorded)
    if as_json:
        print_json(report)
    else:
        click.echo(f"{path}: {report.added} added, {report.already_there} already there")


@db_command.command("migrate", epilog="Example: autotune db migrate --db results.sqlite")
@db_option
@json_option
def migrate(db: str | None, as_json: bool) -> None:
    """Bring an older database to this version's schema.

    Files after a backup; PostgreSQL too.
    """
    from autotune.store import open_store

    must_exist(db)
    with open_store(db, migrate=True) as store:
        found = store.info()
        migration = store.migration
    if as_json:
        print_json({"database": found.database, "schema": found.schema, "migration": migration})
    else:
        click.echo(f"{found.database}: schema {found.schema}; {migration}")


@db_command.command("check", epilog="Example: autotune db check --db results.sqlite")
@db_option
@json_option
def check(db: str | None, as_json: bool) -> int:
    """Look for damage; exit code 1 where there is some."""
    from autotune.store import open_store

    must_exist(db)
    with open_store(db) as store:
        troubles = store.check()
    if as_json:
        print_json({"troubles": troubles})
    else:
        for trouble in troubles or ["nothing wrong"]:
            click.echo(trouble)
    return 1 if troubles else 0


@db_command.command("prune", epilog="Example: autotune db prune --study old-study --yes")
@click.option("--study", metavar="NAME", help="Remove this study.")
@click.option("--kernel", metavar="NAME", help="Remove records of this kernel.")
@click.option("--yes", is_flag=True, help="Do it; without, only say how many records would go.")
@db_option
@json_option
def prune(study: str | None, kernel: str | None, yes: bool, db: str | None, as_json: bool) -> None:
    """Remove the records of a study or kernel for good."""
    from autotune.errors import InputError
    from autotune.store import RecordQuery, open_store

    if study is None and kernel is None:
        raise InputError("say what to remove, with --study or --kernel", key="prune")
    must_exist(db)
    with open_store(db) as store:
        gone = store.prune(RecordQuery(study=study, kernel=kernel), dry_run=not yes)
    if as_json:
        print_json({"records": gone, "removed": yes})
    else:
        click.echo(f"{gone} records removed" if yes else f"{gone} records would go; add --yes to remove them")
