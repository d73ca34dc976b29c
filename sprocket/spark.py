"""Spark over the segment files of a broker.

Importing this registers the data source ``rocketmq`` with the active Spark session, if there is one;
``sprocket.spark.session()`` makes a session that has it, and ``register(spark)`` adds it to a given one::

    import sprocket.spark

    spark = sprocket.spark.session()
    spark.read.format("rocketmq").option("subscribe", "Flights").load("/data/broker-a/store").show()
"""

from pyspark.sql import SparkSession

from sprocket.common.own_packages import check_own_packages

check_own_packages("spark", "store")

from spark.session import register, session  # noqa: E402 # only after the check

__all__ = ["register", "session"]

_active = SparkSession.getActiveSession()
if _active is not None:
    register(_active)
