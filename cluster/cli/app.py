"""The command line as a whole: its commands, and how errors end it.

An error that the user can mend is one line on standard error and exit code 2.
"""

from __future__ import annotations

import sys

import typer

from cluster.cli import config, datastore, drill, loadtest, models, policy, serve, status, version
from cluster.errors import ClusterError
from drafters.errors import DrafterError
from models.errors import ModelError
from policy_service.errors import PolicyError

app = typer.Typer(
    name="banditserve",
    help="Serve a language model with speculative decoding that adapts itself.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("status")(status.status)
app.command("loadtest")(loadtest.loadtest)
app.command("drill")(drill.drill)
app.add_typer(models.app, name="models")
app.add_typer(config.app, name="config")
app.add_typer(datastore.app, name="datastore")
app.add_typer(policy.app, name="policy")
app.command("version")(version.version)


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="banditserve")
    except (ClusterError, DrafterError, ModelError, PolicyError) as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        sys.exit(2)
