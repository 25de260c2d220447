# SPDX-License-Identifier: Apache-2.0
"""slimps: the front command. Run without arguments for help."""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from bench import bench_command  # noqa: E402
from cli import debian_package  # noqa: E402
from cli import decisions  # noqa: E402
from cli import demo_runs  # noqa: E402
from cli import lint  # noqa: E402
from cli import python_package  # noqa: E402
from cli import python_wheel  # noqa: E402
from cli import setup  # noqa: E402
from cli import simulate  # noqa: E402
from cli import test_run  # noqa: E402
from plan import plan_command  # noqa: E402
from slimps_launch import command  # noqa: E402

USAGE = """usage: slimps COMMAND [ARGUMENT ...]

  demo     install what is missing, build, and train on real data: fp32, bf16, 1bit, SlimGC,
           SlimGC both ways (demo --compression NAME[:option=value,...]: with another codec)
  test     install what is missing, build, and run all tests (or: test TARGET ...)
  build    install what is missing, and build everything (or: build TARGET ...)
  lint     check changed sources: C++ with clang-tidy, Python with black and flake8
           (lint --all: every source; or: lint FILE ...)
  launch   run a job: launch [--on WHERE] --workers N --servers S -- slimps_worker ARGUMENT ...
           (or -- python3 SCRIPT, which may import slimps); WHERE: local, ssh:HOSTFILE, slurm, mpi,
           k8s
  run      this process's part of a job, under torchrun, srun, mpirun or Kubernetes:
           run -- python3 SCRIPT
  status   what a running job does: who is slow or gone, figures, decisions (--json: all of it)
  top      the same again each second
  keygen   the keys of a job's nodes: keygen DIR --workers N --servers S
  worker   one worker of a job that is started by hand (also: scheduler, server); takes what DMLC_*
           variables say, and the flags that worker --help lists
  wheel    build the wheel, which runs without Debian's packages: wheel --out DIR
  deb      build the Debian package: daemons, units, command, Python, C: deb [--out DIR]
  install-python   build the wheel and install it: install-python [--python PATH] [--target DIR]
  bench    measure codecs and jobs, beside what memory, ZeroMQ and others allow:
           bench %(kinds)s
  plan     predict whether compression pays for a model on a link, against bf16
           (plan --calibrate: with the figures of your machines)
  decisions  what a policy has decided in a run, from its --summary_json: a table, or a picture
           with --svg
  simulate run whole jobs under a scheduler of threads, time and network faults that follows a
           seed: simulate --seeds N [--mutants]
  checkpoint   what a job has saved: checkpoint show DIRECTORY, or verify DIRECTORY
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
            "usage: slimps test [--without-torch2] [--without-wheel] [TARGET or Bazel option ...]"
            "   (default: //...)\n"
            "  --without-torch2  leave out the tests of today's PyTorch, which pip installs\n"
            "  --without-wheel   leave out the tests of the wheel, which pip's tools pack\n"
            "The last line counts test cases: N passed, N failed."
        )
        return 0
    return test_run.run(arguments)


class Checkout(command.Installation):
    """slimps as it is built in this checkout."""

    again = [os.path.join(setup.REPOSITORY, "tools", "slimps")]
    known_programs = tuple(setup.PROGRAMS)

    def version(self):
        with open(os.path.join(setup.REPOSITORY, "VERSION"), encoding="utf-8") as version:
            return version.read().strip()

    def programs(self, names):
        return setup.ensure_programs(names)

    def environment(self, command):
        return python_package.environment(command)


def program(name):
    """Returns a command that replaces this process by the daemon `name`.

    It builds all daemons together, so that the job's other processes need not wait for a build.
    """

    def become(arguments):
        path = setup.ensure_programs(list(setup.PROGRAMS))["slimps_" + name]
        sys.stdout.flush()
        os.execve(path, ["slimps_" + name] + arguments, dict({"DMLC_ROLE": name}, **os.environ))

    return become


def installed(name):
    """Returns a command that an installed slimps has, too."""
    return lambda arguments: command.COMMANDS[name](arguments, Checkout())


def main(arguments):
    commands = {
        "demo": demo_runs.main,
        "test": test,
        "build": build,
        "bench": bench_command.main,
        "lint": lint.run,
        "wheel": python_wheel.main,
        "deb": debian_package.main,
        "install-python": python_package.install,
        "plan": plan_command.main,
        "decisions": decisions.main,
        "simulate": simulate.main,
    }
    commands.update((name, program(name)) for name in ("scheduler", "server", "worker"))
    commands.update(
        (name, installed(name))
        for name in ("launch", "run", "status", "top", "keygen", "agent", "checkpoint", "trace")
    )
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments == ["--version"]:
        print("slimps " + Checkout().version())
        return 0
    arguments = command.with_home(arguments)
    if arguments[0] not in commands:
        print("slimps: unknown command \"%s\"\n\n%s" % (arguments[0], USAGE), file=sys.stderr)
        return 2
    return commands[arguments[0]](arguments[1:])


def run(arguments):
    """Runs main and returns the exit status, also if stdout is a closed pipe or a disk is full."""
    return command.guarded(lambda: main(arguments))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
