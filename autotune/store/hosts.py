"""Whether a SQLite file is safe where it lies: its file system, and other hosts that write to it.

SQLite relies on file locks and shared memory, which hosts do not share. Two hosts that write to one file over
a network file system damage it sooner or later; one host alone may use it there, in the slower mode with a
rollback journal.
"""

from __future__ import annotations

import os
import socket
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, delete, insert, select, update

from autotune.errors import StoreError
from autotune.store.models import WriterRow

_CLUSTER = {
    "afs",
    "beegfs",
    "ceph",
    "coda",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "ocfs2",
    "orangefs",
    "panfs",
}
_SHARES = {"9p", "cifs", "nfs", "nfs4", "pvfs2", "smb3", "smbfs", "vboxsf", "wekafs"}
_FUSE = {
    f"fuse.{name}"
    for name in ("beegfs", "ceph", "gcsfuse", "glusterfs", "juicefs", "rclone", "s3fs", "sshfs")
}
NETWORK_FILESYSTEMS = frozenset(_CLUSTER | _SHARES | _FUSE)
"""Types as `/proc/mounts` names them, on which several hosts may see one file."""

WRITER_OPEN = timedelta(minutes=10)
"""A host that wrote this recently, and has not closed the file, counts as having it open."""

CURE = "use PostgreSQL (--db postgresql://...), or one file per host and `autotune db merge` afterwards"


class StoreWarning(UserWarning):
    """Something about the database that the user should know, though no result is lost."""


@dataclass(frozen=True)
class Host:
    """This machine, as far as file locks are concerned."""

    name: str
    boot: str
    """Differs between running kernels; containers on one machine share it, and share its locks."""
    mounts: str
    """The text of `/proc/mounts`; empty where there is none."""

    @classmethod
    def current(cls) -> Host:
        """The machine that this process runs on."""
        name = socket.gethostname()
        return cls(name, _read("/proc/sys/kernel/random/boot_id").strip() or name, _read("/proc/mounts"))

    def filesystem(self, path: Path) -> str:
        """Type of the file system that holds a path, e.g. `ext4` or `nfs4`; empty where unknown."""
        place = str(path.resolve())
        best, kind = "", ""
        for line in self.mounts.splitlines():
            fields = line.split()
            if len(fields) < 3:
                continue
            # Spaces and the like are written as octal escapes.
            mount = fields[1].encode().decode("unicode_escape")
            inside = place == mount or place.startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, fields[2]
        return kind

    def on_network(self, path: Path) -> bool:
        """Whether other hosts may see the same file."""
        return self.filesystem(path) in NETWORK_FILESYSTEMS


def warn_of_network(host: Host, path: Path) -> None:
    """Warns where the file lies on a network file system."""
    if host.on_network(path):
        warnings.warn(
            f"{path} lies on a network file system ({host.filesystem(path)}), where SQLite is safe for one "
            f"host at a time only; for several, {CURE}",
            StoreWarning,
            stacklevel=3,
        )


def refuse_second_host(connection: Connection, host: Host, path: Path) -> None:
    """Raises StoreError where another host has the file open for writing."""
    now = datetime.now(UTC)
    for writer in connection.execute(select(WriterRow.host, WriterRow.boot, WriterRow.last_seen)):
        # The same name with another boot id is this machine before it was restarted.
        elsewhere = writer.boot != host.boot and writer.host != host.name
        if elsewhere and now - writer.last_seen < WRITER_OPEN:
            free = (writer.last_seen + WRITER_OPEN).strftime("%H:%M:%S UTC")
            raise StoreError(
                f"{path} is open on host {writer.host}, which last wrote at {writer.last_seen:%H:%M:%S UTC}, "
                f"and this is host {host.name}; two hosts must not share a SQLite file: {CURE}. If that host "
                f"is gone, the file is free again at {free}"
            )


def note_writer(connection: Connection, host: Host) -> None:
    """Writes down that this process has the file open now, in a running write transaction."""
    now = datetime.now(UTC)
    mine = (WriterRow.boot == host.boot, WriterRow.pid == os.getpid())
    seen = connection.execute(update(WriterRow).where(*mine).values(last_seen=now, host=host.name))
    if seen.rowcount == 0:
        connection.execute(delete(WriterRow).where(WriterRow.last_seen < now - timedelta(days=1)))
        row = {"boot": host.boot, "pid": os.getpid(), "host": host.name, "last_seen": now}
        connection.execute(insert(WriterRow), row)


def forget_writer(connection: Connection, host: Host) -> None:
    """Takes the note back, in a running write transaction."""
    connection.execute(delete(WriterRow).where(WriterRow.boot == host.boot, WriterRow.pid == os.getpid()))


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
