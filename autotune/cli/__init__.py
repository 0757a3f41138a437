"""The `autotune` command: parse, call, print. Each command's module is imported only when it is used."""

from __future__ import annotations

import importlib
import sys

import click

from autotune import __version__

# Name -> (module, one-line help); kept here so that `autotune --help` imports nothing else.
_COMMANDS = {
    "search": ("autotune.cli.search", "Find the fastest configuration of a kernel on a GPU."),
    "best": ("autotune.cli.best", "Say which configuration is best for a size, and how that is known."),
    "export": ("autotune.cli.export", "Write a tuned kernel as a C++ header, JSON or cubins."),
    "check": ("autotune.cli.check", "Validate a kernel's spec and template without a GPU."),
    "explain": ("autotune.cli.explain", "Show the resources, occupancy and limits of one configuration."),
    "verify": ("autotune.cli.verify", "Verify the best configuration at awkward sizes on the GPU."),
    "db": ("autotune.cli.db", "Look into, merge, export, import, migrate or prune the database."),
    "gpus": ("autotune.cli.lists", "List the known GPU tables and the GPUs in this machine."),
    "kernels": ("autotune.cli.lists", "List the kernels that can be tuned."),
    "doctor": ("autotune.cli.doctor", "Say what is installed, what will work, and how to mend the rest."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use, so that `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order above."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None for an unknown name."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands with their one-line help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest command named for an unknown one."""
        from autotune.errors import nearest_name

        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            ctx.fail(f"no such command '{args[0]}' (nearest: {nearest_name(args[0], _COMMANDS)})")
        return super().resolve_command(ctx, args)


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done, 2 bad input, 3 needs a GPU that is not here, 4 nothing legal or everything "
    "failed, 130 interrupted with all results kept.",
)
@click.version_option(__version__, prog_name="autotune")
def cli() -> None:
    """Find the fastest legal configuration of a templated CUDA kernel on a GPU, and hand it over.

    \b
    autotune search --gpu a6000 --size 4096      # measures where that GPU is, predicts where it is not
    autotune best   --gpu a6000 --size 4096
    autotune export --gpu a6000 -o sgemm_a6000.cuh
    """


def main() -> None:
    """Run the command line; errors raised on purpose become one message and their exit code."""
    from autotune.errors import AutotuneError

    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except AutotuneError as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader (`| head`) went away; Python would complain again when flushing at exit.
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
