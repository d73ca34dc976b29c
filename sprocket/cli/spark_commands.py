"""`sprocket spark`: what an analyst asks of store directories, through Spark.  Needs the extra ``spark``."""

import click

from sprocket.cli.client_session import HELP


@click.group(context_settings=HELP)
def spark() -> None:
    """Query store directories (storePathRootDir) with Spark, on running brokers too.

    DIR is a store directory, a glob, or name=directory for a broker's name of your own.
    """
