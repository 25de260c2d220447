# SPDX-License-Identifier: Apache-2.0
"""The flags of slimps bench cluster, which are checked before anything is started."""


from bench.cluster import budgets
from bench.cluster import net
from bench.link import round_trip
from bench.cluster import systems
from bench.common import Parser, name_list, number
from slimps_launch import out_files

COMPUTE_LINK = "1gbit"  # the link of the models' published ratios, whatever --link is
LONGEST = 1e6  # seconds
COMPARED = "slimgc_1bit,slimgc_1bit_2way"  # the systems of --fixed_thresholds without --systems


def make_parser():
    parser = Parser(
        prog="slimps bench cluster",
        allow_abbrev=False,
        description="Runs training jobs on nodes that are network namespaces with shaped links "
        "(root), one system after the other. Communication, compression, servers and local updates "
        "are real; the accelerator's compute is simulated by waiting. Systems: %s; a NAME@BYTES, "
        "NAME@none or NAME@auto has "
        "that threshold, for pushes and pulls alike." % ", ".join(systems.BY_NAME),
    )
    parser.add_argument(
        "--link", default="1gbit", metavar="RATE", help="1gbit, 100mbit, ..., or unshaped (1gbit)"
    )
    round_trip.add_flag(parser)
    parser.add_count("--nodes", 64, 2, "number of workers, and of servers")
    parser.add_argument(
        "--model",
        type=name_list,
        default=["resnet50"],
        metavar="LIST",
        help="models, or all (resnet50)",
    )
    parser.add_argument(
        "--systems",
        type=name_list,
        metavar="LIST",
        help="systems (all; with --fixed_thresholds %s)" % COMPARED,
    )
    parser.add_argument(
        "--fixed_thresholds",
        type=name_list,
        metavar="LIST",
        help="beside each system with an automatic threshold the same with each of these, such as "
        "0,65536,1048576,none, and a table of how they compare",
    )
    parser.add_argument(
        "--budgets",
        type=budgets.codec_list,
        metavar="LIST",
        help="instead of --systems: joint with each of these codecs' errors as its budget, such "
        "as '1bit|qsgd:bits=4,norm=max|powersgd:rank=4', beside all fixed codecs that are within "
        "one, and a table of how they compare",
    )
    parser.add_count("--iterations", 10000, 10, "iterations of each job that are measured")
    parser.add_count(
        "--repeats", 10000, 1, "jobs of each system, all systems in turn; figures are the medians"
    )
    parser.add_argument(
        "--compute_ms",
        type=number(0, 3.6e6, float),
        metavar="MS",
        help="compute time of one iteration, on any link (fp32 wire time at %s over the model's "
        "published ratio)" % COMPUTE_LINK,
    )
    parser.add_argument(
        "--overlap_forward",
        action="store_true",
        help="a step does not wait for weights; each layer's forward pass waits for its own",
    )
    parser.add_placement()
    parser.add_argument(
        "--same_host",
        choices=("shm", "ipc", "tcp"),
        default="shm",
        help="how a worker reaches the server on its own node, for all systems alike (shm, as the "
        "product does by itself)",
    )
    parser.add_argument(
        "--profiles",
        metavar="FILE",
        help="keep the thresholds that were measured here, and take those that are here already",
    )
    parser.add_argument(
        "--change_link",
        metavar="S:RATE,...",
        help="change the rate so many seconds after the first decision of an automatic threshold, "
        "which is then measured inside of each job (without one: after the first iteration); "
        "prints every decision",
    )
    parser.add_argument(
        "--congestion",
        default="cubic",
        metavar="NAME",
        help="TCP's congestion control, or default (cubic)",
    )
    parser.add_argument(
        "--encode_threads",
        type=number(0, 1024, int),
        default=0,
        metavar="N",
        help="partitions that each worker encodes, and merges, at a time (0: one per core)",
    )
    parser.add_count("--shard_threads", 1024, 1, "threads of each server that sum and step")
    parser.add_argument(
        "--snapshot_every",
        type=number(0, 86400, int),
        default=0,
        metavar="S",
        help="seconds between two snapshots of a server, which then may be started again (0: none)",
    )
    parser.add_argument(
        "--timeout",
        type=number(1, LONGEST, float),
        default=900.0,
        metavar="S",
        help="seconds that one job may take (900)",
    )
    parser.add_files(
        "slimps_scheduler, slimps_server and bench_cluster_worker",
        json="write the figures here, after each model",
    )
    return parser


def bits(rate):
    """Returns the bits per second of a rate; None for "unshaped". ValueError: it is no rate."""
    return None if rate == "unshaped" else net.bits_per_second(rate)


def parse_changes(text):
    """Returns [(seconds, rate)] in the text's order, which must be by time.

    ValueError: the text is something else.
    """
    changes = []
    for part in text.split(","):
        seconds, colon, rate = part.partition(":")
        try:
            changes.append((float(seconds), rate))
        except ValueError:
            colon = ""
        if not colon or not 0 <= changes[-1][0] <= LONGEST:
            raise ValueError(
                "expected SECONDS:RATE,... with 0 to %d seconds, got '%s'" % (LONGEST, text)
            )
        bits(rate)
    if changes != sorted(changes, key=lambda change: change[0]):
        raise ValueError("expected times in order, got '%s'" % text)
    return changes


def with_fixed_thresholds(entries, thresholds):
    """Returns `entries` with the fixed-threshold variants after each entry with an automatic one.

    ValueError: no entry has an automatic threshold.
    ValueError: a threshold is wrong, or a system would be measured twice.
    """
    chosen = []
    for entry in entries:
        chosen.append(entry)
        if systems.is_automatic(entry):
            chosen += [
                systems.find("%s@%s" % (entry.name.partition("@")[0], threshold))
                for threshold in thresholds
            ]
    if "auto" in thresholds:
        raise ValueError("expected bytes or none, got 'auto'")
    if len(chosen) == len(entries):
        raise ValueError(
            "none of the systems has an automatic threshold to compare with: %s"
            % (",".join(entry.name for entry in entries))
        )
    names = [entry.name for entry in chosen]
    for name in names:
        if names.count(name) > 1:
            raise ValueError("%s would be measured twice" % name)
    return chosen


def settle(parser, options):
    """Checks what argparse cannot check, and sets the options that depend on several flags."""

    def checked(flag, parse):
        try:
            return parse()
        except ValueError as error:
            return parser.error("--%s: %s" % (flag, error))

    options.bits = checked("link", lambda: bits(options.link))
    options.changes = checked(
        "change_link",
        lambda: parse_changes(options.change_link) if options.change_link is not None else [],
    )
    if "all" in options.model and len(options.model) > 1:
        parser.error("--model: expected all, or names, got both: %s" % ",".join(options.model))
    if options.budgets and (options.systems or options.fixed_thresholds):
        parser.error(
            "--budgets: expected without --systems and --fixed_thresholds, which it chooses"
        )
    names = options.systems or (
        COMPARED.split(",") if options.fixed_thresholds else list(systems.BY_NAME)
    )
    options.systems = checked("systems", lambda: [systems.find(name) for name in names])
    if options.fixed_thresholds:
        options.systems = checked(
            "fixed_thresholds",
            lambda: with_fixed_thresholds(options.systems, options.fixed_thresholds),
        )
    out_files.refuse_unwritable(parser, "--json", options.json)
    out_files.refuse_unwritable(parser, "--profiles", options.profiles)
