"""slimps bench: how fast codecs are, beside what memory allows, and jobs, beside raw ZeroMQ."""

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile

import slimps_bench_cluster
import slimps_bench_tables
import slimps_bench_transport
import slimps_launch
import slimps_setup

TARGET = "//tools/bench:bench_codec"
PROGRAM = os.path.join(slimps_setup.REPOSITORY, "bazel-bin", "tools", "bench", "bench_codec")
USAGE = """usage: slimps bench codec [OPTION ...]             measure, print tables, write JSON
       slimps bench transport [OPTION ...]         push-pull of real jobs beside raw ZeroMQ
       slimps bench cluster [OPTION ...]           whole systems on nodes with shaped links (root)
       slimps bench render FILE [--into PAGE]        that JSON as markdown

slimps bench codec --help (transport, cluster) says more."""


class Parser(argparse.ArgumentParser):
    """Says which flag was probably meant."""

    def error(self, message):
        for word in message.split():
            if word.startswith("--") and "unrecognized" in message:
                flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
                near = difflib.get_close_matches(word.split("=")[0], flags, 1, 0.5)
                if near:
                    message += ": did you mean %s?" % near[0]
                break
        super().error(message)


def codec_parser():
    parser = Parser(
        prog="slimps bench codec", allow_abbrev=False,
        description="Measures every codec: GB/s of fp32 gradient, and the same as a fraction of a plain loop that the "
                    "same process runs in turn with it. Takes some minutes.")
    parser.add_argument("--quick", action="store_true", help="64 Ki elements, short: to see that it works")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    parser.add_argument("--codecs", default="", metavar="LIST", help="names, or specs such as 1bit:scaling=none (all)")
    parser.add_argument("--ops", default="", metavar="LIST",
                        help="of %s (all)" % ", ".join(slimps_bench_tables.OPERATIONS))
    parser.add_argument("--elements", default="", metavar="LIST", help="sizes, such as 64Ki,1Mi (64Ki,1Mi,16Mi)")
    parser.add_argument("--threads", default="", metavar="LIST", help="numbers of threads (1)")
    parser.add_argument("--isa", default="", metavar="LIST", help="of scalar, avx2, avx512 (avx2 and this CPU's best)")
    parser.add_argument("--workers", default="", metavar="LIST", help="payloads that aggregate sums (1,2,4,8,16)")
    parser.add_argument("--table", default="", metavar="MODEL",
                        help="a model, such as resnet50 or vgg16: instead, how long its whole gradient takes (with "
                             "--codecs, --threads and --isa, the best one if not given)")
    parser.add_argument("--program", metavar="FILE", help="a bench_codec that is built already")
    return parser


def codec(arguments):
    options = codec_parser().parse_args(arguments)
    program = options.program
    if program is None:
        slimps_setup.install_packages()
        slimps_setup.build([TARGET])
        program = PROGRAM
    with tempfile.TemporaryDirectory(prefix="slimps-") as folder:
        path = options.json or os.path.join(folder, "bench.json")
        command = [program, "--json=" + path] + (["--quick"] if options.quick else [])
        command += ["--%s=%s" % (name, getattr(options, name))
                    for name in ("codecs", "ops", "elements", "threads", "isa", "workers", "table")]
        try:
            status = subprocess.run(command, check=False).returncode
        except OSError as error:
            raise slimps_setup.SetupError("cannot run %s: %s" % (program, error))
        if status < 0:
            raise slimps_setup.SetupError("%s was killed by %s" % (program, slimps_launch.signal_name(-status)))
        if status not in (0, 1):
            return 2  # the program has said why
        with open(path, encoding="utf-8") as text:
            print(slimps_bench_tables.text(json.load(text)))
    return status


def transport(arguments):
    return slimps_bench_transport.main(arguments, Parser)


def cluster(arguments):
    return slimps_bench_cluster.main(arguments, Parser)


def render(arguments):
    parser = Parser(prog="slimps bench render", allow_abbrev=False,
                    description="What slimps bench --json wrote, as markdown.")
    parser.add_argument("file")
    parser.add_argument("--into", metavar="PAGE",
                        help="replace what is between <!-- bench codec --> and <!-- end codec --> there (for a model's "
                             "table its name instead of codec, for the transport's transport, for a cluster's "
                             "\"cluster 1gbit\" or its other link)")
    options = parser.parse_args(arguments)
    try:
        with open(options.file, encoding="utf-8") as source:
            report = json.load(source)
        if not options.into:
            print(slimps_bench_tables.markdown(report))
            return 0
        with open(options.into, encoding="utf-8") as page:
            document = slimps_bench_tables.put_into(page.read(), report)
        with open(options.into, "w", encoding="utf-8") as page:
            page.write(document)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise slimps_setup.SetupError("cannot render %s%s: %s" % (
            options.file, " into " + options.into if options.into else "", error))
    return 0


def main(arguments):
    commands = {"codec": codec, "transport": transport, "cluster": cluster, "render": render}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] not in commands:
        near = difflib.get_close_matches(arguments[0], commands, 1)
        print("slimps bench: unknown bench \"%s\"%s\n\n%s" % (
            arguments[0], ": did you mean %s?" % near[0] if near else "", USAGE), file=sys.stderr)
        return 2
    return commands[arguments[0]](arguments[1:])
