"""``banditserve policy``: what the pool has learnt, and what could be learnt from records."""

from __future__ import annotations

import typer

from cluster.cli.policy.explain import explain
from cluster.cli.policy.export import export
from cluster.cli.policy.import_ import import_
from cluster.cli.policy.record import record
from cluster.cli.policy.replay import replay
from cluster.cli.policy.reset import reset
from cluster.cli.policy.show import show

app = typer.Typer(help="Look into, carry over and try out what was learnt.", no_args_is_help=True)
app.command("show")(show)
app.command("export")(export)
app.command("import")(import_)
app.command("reset")(reset)
app.command("record")(record)
app.command("explain")(explain)
app.command("replay")(replay)
