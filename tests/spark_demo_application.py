"""The application of ``make demo-spark``: purchases, read as a stream, become invoices, exactly once.

It is what a user would write: read a topic, sum up what each customer has bought in each ten minutes, look up the
customer's name and discount in a small table, write an invoice for it to another topic. Nothing in it knows of crashes.
It says on standard output what it has done, a line a batch, and ends when its standard input does.

``python -m tests.spark_demo_application run HOST:PORT CHECKPOINT`` is a run of the stream, ``judge`` in place of
``run`` computes the same from all purchases at once, as a batch, and compares.
"""

import json
import select
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

PURCHASES, INVOICES = "purchases", "invoices"
SINK = "invoicing"
CUSTOMERS = [(f"u{number:02}", f"Customer {number}", number % 4 * 5) for number in range(20)]
"""User, name, discount in percent: the small table."""
PURCHASE = "user_id string, quantity long, price_cents long, at timestamp"
WINDOW = "10 minutes"
LATENESS = "4 hours"
"""Purchases may come so much later than others; an invoice is written when no more can come for it."""
MOST_AT_ONCE = 10_000


def say(step: str, **details: object) -> None:
    print(json.dumps({"step": step, **details}), flush=True)


def start_spark() -> SparkSession:
    builder = SparkSession.builder.master("local[2,4]").appName("invoicing")
    settings = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def invoices_of(records: DataFrame) -> DataFrame:
    """The invoices that follow from purchases, as records: the same code for a stream and for a batch."""
    customers = records.sparkSession.createDataFrame(CUSTOMERS, "user_id string, name string, discount int")
    purchases = records.select(f.from_json(f.col("value").cast("string"), PURCHASE).alias("purchase")).select(
        "purchase.*"
    )
    totals = (
        purchases.withWatermark("at", LATENESS)
        .groupBy(f.window("at", WINDOW), "user_id")
        .agg(f.count("*").alias("purchases"), f.sum(f.expr("quantity * price_cents")).alias("gross_cents"))
    )
    return totals.join(customers, "user_id").select(
        f.concat_ws("@", "user_id", f.col("window.start").cast("string")).alias("key"),
        f.to_json(
            f.struct(
                "name",
                "purchases",
                "gross_cents",
                f.expr("gross_cents - gross_cents * discount div 100").alias("to_pay_cents"),
                f.col("window.end").alias("until"),
            )
        ).alias("value"),
    )


def run(spark: SparkSession, address: str, checkpoint: str) -> None:
    records = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", PURCHASES)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(MOST_AT_ONCE))
        .load()
    )
    query = (
        invoices_of(records)
        .writeStream.format("oncelog")
        .option("kafka.bootstrap.servers", address)
        .option("topic", INVOICES)
        .option("checkpointLocation", checkpoint)
        .option("transactionalIdPrefix", SINK)
        .start()
    )
    say("started")
    last = -1
    while not select.select([sys.stdin], [], [], 0)[0]:
        if query.awaitTermination(1):
            break
        progress = query.lastProgress
        if progress is not None and progress.batchId != last:
            last = progress.batchId
            end = json.loads(progress.sources[0].endOffset)["end"][PURCHASES]
            say("batch", batch=last, purchases=progress.numInputRows, read=sum(end.values()))
    query.processAllAvailable()
    query.stop()
    say("finished")


def judge(spark: SparkSession, address: str, until: str) -> None:
    """Compare what is in the topic with what a batch makes of the same purchases, up to a point in event time."""
    records = spark.read.format("oncelog").option("kafka.bootstrap.servers", address)
    expected = invoices_of(records.option("subscribe", PURCHASES).load())
    expected = expected.where(f.get_json_object("value", "$.until").cast("timestamp") <= f.lit(until).cast("timestamp"))
    found = records.option("subscribe", INVOICES).load().selectExpr("cast(key as string)", "cast(value as string)")
    expected.cache()
    found.cache()
    say(
        "judged",
        expected=expected.count(),
        found=found.count(),
        repeated=found.groupBy("key").count().where("count > 1").count(),
        missing=expected.exceptAll(found).count(),
        wrong=found.exceptAll(expected).count(),
        purchases=spark.read.format("oncelog")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", PURCHASES)
        .load()
        .count(),
    )


def main() -> None:
    action, address, argument = sys.argv[1:]
    spark = start_spark()
    {"run": run, "judge": judge}[action](spark, address, argument)
    spark.stop()


if __name__ == "__main__":
    main()
