# SPDX-License-Identifier: Apache-2.0
"""Any report of slimps bench: checks it, and renders it by the tables of the bench that made it."""

from bench.cluster import cluster_tables
from bench.codec import codec_tables
from bench.gpu import gpu_tables
from bench.torch import python_bench
from bench.torch import torch_tables
from bench.training import accuracy_bench
from bench.training import convergence_bench
from bench.training import sensitivity_bench
from bench.transport import transport_tables
from slimps_launch import schema

# By the first word of the report's "bench". A report without it is codec_tables'.
TABLES = {
    "accuracy": accuracy_bench,
    "cluster": cluster_tables,
    "convergence": convergence_bench,
    "gpu": gpu_tables,
    "python": python_bench,
    "sensitivity": sensitivity_bench,
    "torch": torch_tables,
    "transport": transport_tables,
}


def check(report):
    """Checks that `report` is the report of a bench.

    ValueError: it is not; names the field, what was expected and what is there.
    """
    schema.check(report, {"bench": schema.Optional(schema.TEXT)})
    module = TABLES.get(report.get("bench", "").split(" ")[0])
    if module is None and "bench" in report:
        schema.refuse(
            "bench",
            "transport, cluster LINK, torch LINK, gpu, python, accuracy, convergence, "
            "sensitivity, or none (codec)",
            report["bench"],
        )
    schema.check(report, codec_tables.shape_of(report) if module is None else module.SHAPE)


def kind(report):
    """Returns "codec", the model's name, or the name of another bench with what it was run on."""
    return report.get("bench") or (report["table"]["name"] if "table" in report else "codec")


def tables_of(report):
    return TABLES.get(kind(report).split()[0], codec_tables)


def text(report):
    return tables_of(report).text(report)


def markdown(report):
    return tables_of(report).markdown(report)


def put_into(document, report):
    """Returns `document` with the report's tables between its two markers.

    The markers are <!-- bench KIND --> and <!-- end KIND -->.
    ValueError: the document does not have each of these markers once, in this order.
    """
    begin, end = "<!-- bench %s -->" % kind(report), "<!-- end %s -->" % kind(report)
    if (
        document.count(begin) != 1
        or document.count(end) != 1
        or document.index(begin) > document.index(end)
    ):
        raise ValueError("expected one line %s and one line %s after it" % (begin, end))
    before, rest = document.split(begin)
    return "%s%s\n%s\n%s%s" % (before, begin, markdown(report), end, rest.split(end)[1])
