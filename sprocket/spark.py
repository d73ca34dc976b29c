"""Spark over the segment files of a broker.

Importing this registers the data source ``rocketmq`` with the active Spark session, if there is one;
``sprocket.spark.session()`` makes a session that has it, and ``register(spark)`` adds it to a given one::

    import sprocket.spark

    spark = sprocket.spark.session()
    spark.read.format("rocketmq").option("subscribe", "Flights").load("/data/broker-a/store").show()
"""

from sprocket.common.extras import missing_package
from sprocket.common.own_packages import check_own_packages

check_own_packages("spark", "store")

try:
    from pyspark.sql import SparkSession

    from spark.session import register, session
except ModuleNotFoundError as error:
    raise ImportError(missing_package(error, "sprocket.spark") or str(error), name=error.name) from error

__all__ = ["register", "session"]

_active = SparkSession.getActiveSession()
if _active is not None:
    register(_active)
