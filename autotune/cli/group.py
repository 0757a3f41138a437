"""A group of commands that names the nearest one for a misspelt name."""

from __future__ import annotations

import click


class NearestGroup(click.Group):
    """As click's own, but for its message on a command that does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; fails with the nearest command for an unknown one."""
        from autotune.errors import nearest_name

        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            ctx.fail(f"no such command '{args[0]}' (nearest: {nearest_name(args[0], known)})")
        return super().resolve_command(ctx, args)
