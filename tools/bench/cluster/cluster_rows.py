# SPDX-License-Identifier: Apache-2.0
"""The rows of a report of slimps bench cluster, from the figures of its jobs."""

from bench.cluster import bound
from bench.cluster import systems


def median_row(rows):
    """Returns the job with the median iteration time (of an even number, the lower middle one)."""
    return sorted(rows, key=lambda row: row["iteration_ms"])[(len(rows) - 1) // 2]


def results_of(options, entries, model, milliseconds, measured):
    """Returns the rows of one model. `measured` has the figures of each system's jobs."""
    medians = {name: median_row(rows) for name, rows in measured.items()}

    def speedup(name, over):
        return (
            medians[over]["iteration_ms"] / medians[name]["iteration_ms"]
            if over in medians
            else None
        )

    results = []
    for entry in entries:
        row = medians[entry.name]
        limit = bound.bound_ms(milliseconds, row["wire_ms_at_link_rate"], row["cpu_ms"])
        result = {
            "system": entry.name,
            "model": model,
            "link": options.link,
            "iteration_ms": row["iteration_ms"],
            "compute_ms": milliseconds,
        }
        for name in (
            "encode_ms",
            "encode_exposed_ms",
            "overlap_ms",
            "wire_bytes_out",
            "wire_bytes_in",
            "wire_ms_at_link_rate",
        ):
            result[name] = row[name]
        result.update(
            {
                "bound_ms": limit,
                "fraction_of_bound": row["iteration_ms"] / limit if limit else None,
                "speedup_over_1bit": speedup(entry.name, "1bit"),
                "speedup_over_fp32": speedup(entry.name, "fp32"),
                "threshold_bytes": row["threshold_bytes"],
            }
        )
        if systems.adapts(entry):
            result["policy"] = entry.policy
        else:
            result["threshold_setting"] = "auto" if systems.is_automatic(entry) else entry.threshold
        for name in (
            "pull_threshold_bytes",
            "cpu_ms",
            "worker_cpu_ms",
            "exposed_comm_ms",
            "payload_bytes_out",
            "payload_bytes_in",
            "shared_bytes",
            "max_rss_bytes",
            "borrowed_rss_bytes",
            "workers_are_identical",
            "decisions",
        ):
            result[name] = row[name]
        result["iteration_ms_of_repeats"] = [job["iteration_ms"] for job in measured[entry.name]]
        result["simulated"] = "compute and encoding" if entry.device_ns else "compute"
        result["says"] = entry.says
        results.append(result)
    return results
