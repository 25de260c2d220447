# SPDX-License-Identifier: Apache-2.0
"""slimps: the front command. Run without arguments for help."""

import argparse
import os
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from bench import bench_command  # noqa: E402
from bench import common  # noqa: E402
from cli import demo_runs  # noqa: E402
from cli import lint  # noqa: E402
from cli import python_package  # noqa: E402
from cli import setup  # noqa: E402
from cli import test_run  # noqa: E402
from slimps_launch import out_files  # noqa: E402
from slimps_launch import errors  # noqa: E402
from slimps_launch import job_launch  # noqa: E402
from slimps_launch import job_trace  # noqa: E402

USAGE = """usage: slimps COMMAND [ARGUMENT ...]

  demo     install what is missing, build, and train on real data: fp32, bf16, 1bit, SlimGC,
           SlimGC both ways (demo --compression NAME[:option=value,...]: with another codec)
  test     install what is missing, build, and run all tests (or: test TARGET ...)
  build    install what is missing, and build everything (or: build TARGET ...)
  lint     check changed sources: C++ with clang-tidy, Python with black and flake8
           (lint --all: every source; or: lint FILE ...)
  launch   run a job on this machine: launch --workers N --servers S -- slimps_worker ARGUMENT ...
           (or -- python3 SCRIPT, which may import slimps)
  worker   one worker of a job that is started by hand (also: scheduler, server); takes what DMLC_*
           variables say, and the flags that worker --help lists
  install-python   build the Python package and install it for this user
  bench    measure codecs and jobs, beside what memory, ZeroMQ and others allow:
           bench %(kinds)s
  trace    what --trace FILE of launch or demo recorded: a table, or a picture with --svg

slimps COMMAND --help says more; slimps --version names this one.""" % {
    "kinds": ", ".join(kind.name for kind in bench_command.KINDS)
}


def build(arguments):
    if "--help" in arguments or "-h" in arguments:
        print("usage: slimps build [TARGET or Bazel option ...]   (default: //...)")
        return 0
    setup.install_packages()
    options = [argument for argument in arguments if argument.startswith("-")]
    targets = [argument for argument in arguments if not argument.startswith("-")]
    setup.build(targets or ["//..."], options)
    return 0


def test(arguments):
    if "--help" in arguments or "-h" in arguments:
        print(
            "usage: slimps test [--without-torch2] [TARGET or Bazel option ...]  (default: //...)\n"
            "  --without-torch2  leave out the tests of today's PyTorch, which pip installs\n"
            "The last line counts test cases: N passed, N failed."
        )
        return 0
    return test_run.run(arguments)


def launch(arguments):
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, command = arguments[:cut], arguments[cut + 1 :]
    else:
        command = []
    parser = argparse.ArgumentParser(
        prog="slimps launch",
        usage="slimps launch --workers N --servers S [--local] [--verbose] [--trace FILE] "
        "-- COMMAND ...",
        description="Starts a scheduler, servers and workers on this machine and waits for the "
        "job. COMMAND is what each worker runs: slimps_worker (the one built here) with its "
        "arguments, or any other program, which finds its place in DMLC_* variables. A Python "
        "finds the package slimps, installed or not.",
    )
    count = common.number(1, 4096, int)
    parser.add_argument("--workers", type=count, metavar="N", required=True)
    parser.add_argument("--servers", type=count, metavar="S", required=True)
    parser.add_argument(
        "--local", action="store_true", help="on this machine (the only place so far)"
    )
    parser.add_argument("--verbose", action="store_true", help="show the commands too")
    parser.add_argument("--trace", metavar="FILE", help=job_trace.FLAG_HELP)
    options = parser.parse_args(arguments)
    if not command:
        parser.error("what shall the workers run? expected -- COMMAND at the end")
    out_files.refuse_unwritable(parser, "--trace", options.trace)
    names = ["slimps_scheduler", "slimps_server"]
    if command[0] in setup.PROGRAMS:
        names.append(command[0])
    programs = setup.ensure_programs(names)
    command, environment = python_package.prepare(command)
    try:
        worker = job_launch.resolve_command(command, programs)
    except FileNotFoundError as error:
        parser.error(str(error))
    job = job_launch.Job(
        [programs["slimps_scheduler"]],
        [programs["slimps_server"]],
        worker,
        options.workers,
        options.servers,
        environment,
    )
    launcher = job_launch.Launcher(job, verbose=options.verbose)
    if options.trace is None:
        return launcher.run()
    with job_trace.Gathering(options.trace) as trace:
        job.environment.update(trace.of_job(options.workers, options.servers))
        status = launcher.run()
        merged = trace.merge(lambda line: print(line, flush=True))
    return status or (0 if merged else 1)


def program(name):
    """Returns a command that replaces this process by the daemon `name`.

    It builds all daemons together, so that the job's other processes need not wait for a build.
    """

    def become(arguments):
        path = setup.ensure_programs(list(setup.PROGRAMS))["slimps_" + name]
        sys.stdout.flush()
        os.execve(path, ["slimps_" + name] + arguments, dict({"DMLC_ROLE": name}, **os.environ))

    return become


def main(arguments):
    commands = {
        "demo": demo_runs.main,
        "test": test,
        "build": build,
        "launch": launch,
        "bench": bench_command.main,
        "lint": lint.run,
        "trace": job_trace.main,
        "install-python": python_package.install,
    }
    commands.update((name, program(name)) for name in ("scheduler", "server", "worker"))
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments == ["--version"]:
        with open(os.path.join(setup.REPOSITORY, "VERSION"), encoding="utf-8") as version:
            print("slimps " + version.read().strip())
        return 0
    if arguments[0] not in commands:
        print("slimps: unknown command \"%s\"\n\n%s" % (arguments[0], USAGE), file=sys.stderr)
        return 2
    try:
        return commands[arguments[0]](arguments[1:])
    except errors.LaunchError as error:
        print("slimps: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(arguments):
    """Runs main and returns the exit status, also if stdout is a closed pipe or a disk is full."""
    try:
        status = main(arguments)
        sys.stdout.flush()
        return status
    except OSError as error:
        # The rest cannot be printed, so the interpreter must not try again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 128 + signal.SIGPIPE
        print(
            "slimps: %s%s"
            % (error.strerror or error, ": %s" % error.filename if error.filename else ""),
            file=sys.stderr,
        )
        return 1


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
