"""The `autotune` command: parse, call, print. Each command's module is imported only when it is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from autotune import __version__
from autotune.cli.group import NearestGroup

# Name -> (module, one-line help); kept here so that `autotune --help` imports nothing else.
_COMMANDS = {
    "search": ("autotune.cli.search", "Find the fastest configuration of a kernel on a GPU."),
    "best": ("autotune.cli.best", "Say which configuration is best for a size, and how that is known."),
    "export": ("autotune.cli.export", "Write a tuned kernel as a C++ header, JSON or cubins."),
    "new": ("autotune.cli.new", "Write a first kernel of your own, to be changed."),
    "check": ("autotune.cli.check", "Validate a kernel's spec and template without a GPU."),
    "explain": ("autotune.cli.explain", "Show the resources, occupancy and limits of one configuration."),
    "model": ("autotune.cli.model", "Say how good the performance model is on recorded results."),
    "verify": ("autotune.cli.verify", "Verify the best configuration at awkward sizes on the GPU."),
    "bench": ("autotune.cli.bench", "Measure a suite side by side with cuBLAS and cuBLASLt."),
    "ladder": ("autotune.cli.ladder", "Measure the ladder from a naive kernel to a tuned one."),
    "db": ("autotune.cli.db", "Look into, merge, export, import, migrate or prune the database."),
    "gpus": ("autotune.cli.lists", "List the known GPU tables and the GPUs in this machine."),
    "kernels": ("autotune.cli.lists", "List the kernels that can be tuned."),
    "doctor": ("autotune.cli.doctor", "Say what is installed, what will work, and how to mend the rest."),
}


class LazyGroup(NearestGroup):
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

    A kernel of your own needs no Python: `autotune new NAME` writes a first one, `autotune check NAME --run`
    tests it.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit; errors raised on purpose become one message and their exit code.

    `args` are those of the process unless given. Where the reader of a pipe goes away, click ends the process
    quietly with exit code 1.
    """
    from autotune.errors import AutotuneError

    try:
        code = cli.main(args, prog_name="autotune", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        click.echo(f"error: {_one_line(error)}", err=True)
        code = error.exit_code
    except AutotuneError as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    sys.exit(code if isinstance(code, int) else 0)


def _one_line(error: click.ClickException) -> str:
    """What click has to say in the form of our own messages: key, rule and value, nearest or where to look."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    see = f"; see {context.command_path} --help" if context else ""
    if isinstance(error, click.NoSuchOption):
        nearest = f" (nearest: {error.possibilities[0]})" if error.possibilities else ""
        return f"{error.option_name}: no such option{nearest}{see}"
    if isinstance(error, click.MissingParameter) and error.param:
        return f"{_name_of(error.param)}: must be given{see}"
    if isinstance(error, click.BadParameter) and error.param:
        return f"{_name_of(error.param)}: {error.message}"
    message = error.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}{see}"


def _name_of(parameter: click.Parameter) -> str:
    """A parameter as users write it: the option's longest name, the argument's place holder."""
    if isinstance(parameter, click.Argument):
        return parameter.human_readable_name
    return max(parameter.opts, key=len)
