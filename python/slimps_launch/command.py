# SPDX-License-Identifier: Apache-2.0
"""The command line of an installed slimps."""

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading

from slimps_launch import agent
from slimps_launch import checkpoint
from slimps_launch import demo
from slimps_launch import errors
from slimps_launch import job_folders
from slimps_launch import job_launch
from slimps_launch import job_output
from slimps_launch import job_trace
from slimps_launch import network
from slimps_launch.places import here
from slimps_launch.places import on_kubernetes
from slimps_launch.places import on_mpi
from slimps_launch.places import on_slurm
from slimps_launch.places import on_ssh
from slimps_launch.watching import watch_commands
from slimps_launch import out_files
from slimps_launch import restarts
from slimps_launch import run_command
from slimps_launch import watched
from slimps_launch import worker_command
from slimps_launch.identity import keys

USAGE = """usage: slimps COMMAND [ARGUMENT ...]

  demo       train on handwritten digits over a slow link: in fp32, in bf16, and by 1bit
  launch     start a job: launch [--on WHERE] --workers N --servers S -- python3 SCRIPT
             (WHERE: local, ssh:HOSTFILE, slurm, mpi, k8s)
  run        this process's part of a job, under torchrun, srun, mpirun or Kubernetes:
             run -- python3 SCRIPT
  status     what a running job does: who is slow or gone, figures, decisions (--json: all of it)
  top        the same again each second
  keygen     the keys of a job's nodes: keygen DIR --workers N --servers S
  checkpoint what a job has saved: checkpoint show DIRECTORY, or verify DIRECTORY
  trace      what --trace FILE of launch recorded: a table, or a picture with --svg
  plan       predict whether compression pays for a model on a link, against bf16
             (plan --calibrate: with the figures of your machines)
  bench      bench codec: measure every codec on this machine
  scheduler  the scheduler of a job that is started by hand (also: server); takes what DMLC_*
             variables say, and the flags that scheduler --help lists

slimps COMMAND --help says more; slimps --version names this one."""

WHERE = """where the job runs: local (this machine, the default); ssh:HOSTFILE (hosts with lines
"host slots=N"); slurm (the allocation that this runs in); mpi or mpi:HOSTFILE (mpirun or mpiexec
starts the processes); k8s (prints manifests)"""


class Installation:
    """How slimps is installed: as a package with its daemons in bin/. The checkout has another."""

    folder = os.path.dirname(os.path.abspath(__file__))
    again = [sys.executable, "-m", "slimps_launch"]  # runs this command, on other nodes too

    def version(self):
        import importlib.metadata

        return importlib.metadata.version("slimps")

    def programs(self, names):
        """Returns {name: path} of daemons. LaunchError: one is not there."""
        paths = {name: os.path.join(self.folder, "bin", name) for name in names}
        for path in paths.values():
            if not os.access(path, os.X_OK):
                raise errors.LaunchError("%s is not there: install slimps again" % path)
        return paths

    def environment(self, command):
        """Returns the variables that a command of workers needs."""
        # Its lines come as written.
        return {"PYTHONUNBUFFERED": "1"} if worker_command.is_python(command) else {}

    known_programs = ("slimps_scheduler", "slimps_server")


def count(text):
    if not text.isdigit() or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError('expected 1 to 4096, got "%s"' % text)
    return int(text)


def with_home(arguments):
    """Returns the arguments with the home directory for "~" up to "--", also in "--flag=~/x"."""

    def expanded(argument):
        if not argument.startswith("--"):
            return os.path.expanduser(argument)
        flag, equals, value = argument.partition("=")
        return flag + equals + os.path.expanduser(value)

    own, _ = split(arguments)
    return [expanded(argument) for argument in own] + arguments[len(own) :]


def split(arguments):
    """Returns the arguments before and after the first "--"."""
    if "--" not in arguments:
        return arguments, []
    cut = arguments.index("--")
    return arguments[:cut], arguments[cut + 1 :]


def shared_flags(parser):
    parser.add_argument(
        "--interface",
        metavar="NAME",
        help="the network interface by which the nodes meet (default: the route to them)",
    )
    parser.add_argument(
        "--keys", metavar="DIR", help="the folder with the nodes' keys, made by slimps keygen"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="run without keys, where others on the network can read, join and end the job",
    )
    parser.add_argument(
        "--bind",
        choices=("none", "cores"),
        default="cores",
        help="cores (the default): each process has cores of its own, where an engine has not "
        "bound it yet; none: all use all cores",
    )
    # The variables are those of a `slimps launch` that started the engine, or the user's.
    parser.add_argument(
        "--join_timeout_s",
        type=restarts.seconds,
        metavar="SECONDS",
        default=os.environ.get(job_launch.JOIN_TIMEOUT) or 600,
        help="how long to wait until all processes of the job have come (default: 600)",
    )
    parser.add_argument(
        "--timeout_s",
        type=restarts.seconds,
        metavar="SECONDS",
        default=os.environ.get(job_launch.TIMEOUT) or 1800,
        help="how long a worker waits in a call for others that live, as one that evaluates; "
        "whoever died or left is told at once (default: 1800)",
    )
    checkpoint.add_flags(parser)
    parser.add_argument("--logs", metavar="DIR", help="write each process's lines to DIR/NAME.log")
    parser.add_argument("--verbose", action="store_true", help="show the commands too")


def make_job(parser, options, command, installation):
    """Returns the job that the flags describe, without its counts."""
    if not command:
        parser.error("what shall the workers run? expected -- COMMAND at the end")
    names = ["slimps_scheduler", "slimps_server"]
    if command[0] in installation.known_programs and command[0] not in names:
        names.append(command[0])
    programs = installation.programs(names)
    environment = installation.environment(command)
    try:
        worker = worker_command.resolve_command(command, programs)
    except FileNotFoundError as error:
        parser.error(str(error))
    if options.insecure and options.keys:
        parser.error("--keys and --insecure exclude each other")
    insecure = ["--insecure"] if options.insecure else []
    if options.insecure:
        environment.update(dict.fromkeys(keys.VARIABLES, ""))  # whatever this process has
    if options.interface:
        network.interface_address(options.interface)
        environment["DMLC_INTERFACE"] = options.interface
    job = job_launch.Job(
        [programs["slimps_scheduler"]] + insecure,
        [programs["slimps_server"]] + insecure,
        worker,
        options.workers,
        options.servers,
        environment,
    )
    job.set_timeouts(options.join_timeout_s, options.timeout_s)
    checkpoint.prepare(job, options)
    job.share_cores = options.bind == "cores"
    if options.keys:
        job.keys = keys.Folder(options.keys)
    return job


def launch(arguments, installation):
    arguments, command = split(arguments)
    parser = argparse.ArgumentParser(
        prog="slimps launch",
        usage="slimps launch [--on WHERE] --workers N --servers S [FLAG ...] -- COMMAND ...",
        description="Starts a scheduler, servers and workers and waits for the job. COMMAND is "
        "what each worker runs: any program that finds its place in DMLC_* variables, as a Python "
        "script that imports slimps does.",
    )
    parser.add_argument("--on", metavar="WHERE", default="local", help=WHERE)
    parser.add_argument("--workers", type=count, metavar="N", required=True)
    parser.add_argument("--servers", type=count, metavar="S", required=True)
    shared_flags(parser)
    parser.add_argument("--trace", metavar="FILE", help=job_trace.FLAG_HELP)
    parser.add_argument(
        "--servers-apart",
        action="store_true",
        help="slurm: servers have nodes of their own, without workers",
    )
    restarts.add_flags(parser)
    watched.add_flags(parser)
    on_kubernetes.add_flags(parser)
    options = parser.parse_args(arguments)
    where, _, detail = options.on.partition(":")
    restarts.check(parser, options, where)
    checkpoint.check(parser, options)
    if options.trace and where not in ("local", "ssh"):
        parser.error(
            "--trace goes with --on local and --on ssh; for other places see docs/launching.md"
        )
    if options.servers_apart and where != "slurm":
        parser.error("--servers-apart goes with --on slurm")
    if where == "k8s" and watched.scheduler_flags(options):
        parser.error("flags by which a job is watched do not go with --on k8s")
    if where == "k8s":
        return on_kubernetes.print_manifests(parser, options, command)
    makers = {"local": Here, "ssh": on_ssh.Place, "slurm": on_slurm.Place, "mpi": on_mpi.Place}
    if where not in makers or (detail and where in ("local", "slurm")):
        parser.error(
            "--on %s: expected local, ssh:HOSTFILE, slurm, mpi, mpi:HOSTFILE or k8s" % options.on
        )
    out_files.refuse_unwritable(parser, "--trace", options.trace)
    job = make_job(parser, options, command, installation)
    with contextlib.ExitStack() as until_the_end:
        if job.keys:
            job.keys.check(job.workers, job.servers)
        elif where in ("local", "ssh") and not options.insecure:
            folder = until_the_end.enter_context(job_folders.folder("keys"))
            job.keys = keys.make(folder, job.workers, job.servers)
        restarts.prepare(job, options)
        file_flags = until_the_end.enter_context(watched.file_of_job(options, os.environ))
        job.scheduler += watched.scheduler_flags(options) + file_flags
        return run_job(job, makers[where](job, options, detail, installation.again), options)


def run_job(job, place, options):
    """Runs a job at a place. Returns the exit status."""
    launcher = job_launch.Launcher(
        job, verbose=options.verbose, place=place, logs=make_logs(options)
    )
    if options.trace is None:
        return launcher.run()
    with job_trace.Gathering(options.trace) as trace:
        job.environment.update(trace.of_job(options.workers, options.servers))
        status = launcher.run()
        merged = trace.merge(lambda line: print(line, flush=True))
    return status or (0 if merged else 1)


def keygen(arguments, installation):
    parser = argparse.ArgumentParser(
        prog="slimps keygen",
        description="Makes the keys of a job's nodes in a new folder: a secret key for each node, "
        "and the list of public keys that the scheduler takes. slimps launch makes keys for each "
        "job by itself; this is for jobs that are started otherwise.",
    )
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--workers", type=count, metavar="N", required=True)
    parser.add_argument("--servers", type=count, metavar="S", required=True)
    options = parser.parse_args(arguments)
    made = keys.make(options.folder, options.workers, options.servers)
    print(
        "each node needs its own file NAME.key of %s, and the scheduler %s" % (made.path, "allow")
    )
    print("SLIMPS_SCHEDULER_KEY=%s" % made.public["scheduler"])
    return 0


class Here(here.Place):
    def __init__(self, job, options, detail, again):
        if options.interface:
            self.address = network.interface_address(options.interface)


def make_logs(options, suffix=""):
    if not options.logs:
        return None
    try:
        return job_output.Logs(options.logs, suffix)
    except OSError as error:
        raise errors.LaunchError("--logs %s: %s" % (options.logs, error.strerror)) from error


def run_part(arguments, installation):
    arguments, command = split(arguments)
    parser = argparse.ArgumentParser(
        prog="slimps run",
        usage="slimps run [FLAG ...] -- COMMAND ...",
        description="Runs this process's part of a job under an engine that has started it: "
        "torchrun (torchrun --no-python ... slimps run -- python3 SCRIPT), srun, mpirun or "
        "Kubernetes. Each process runs COMMAND as a worker; the first of each node runs a server, "
        "too, and rank 0 the scheduler.",
    )
    parser.add_argument(
        "--workers", type=count, metavar="N", help="how many workers there are (as a check)"
    )
    parser.add_argument(
        "--servers",
        type=count,
        metavar="S",
        help="the first S processes are servers, and only the others run COMMAND",
    )
    parser.add_argument(
        "--scheduler",
        type=run_command.address_and_port,
        metavar="HOST:PORT",
        help="where rank 0 starts the scheduler, if the engine does not say it",
    )
    shared_flags(parser)
    parser.add_argument(
        "--mounted-keys",
        metavar="DIR",
        help="a folder with the keys of this process's nodes, which a pod has from a Secret; they "
        "are copied to one that others cannot enter",
    )
    options = parser.parse_args(arguments)
    checkpoint.check(parser, options)
    if options.mounted_keys and (options.keys or options.insecure):
        parser.error("--mounted-keys excludes --keys and --insecure")
    job = make_job(parser, options, command, installation)
    with contextlib.ExitStack() as until_the_end:
        if options.mounted_keys:
            memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            folder = until_the_end.enter_context(job_folders.folder("keys", memory))
            job.keys = keys.copy(options.mounted_keys, folder)
        return run_command.run(options, command, job, os.environ, make_logs)


def program(name):
    def become(arguments, installation):
        path = installation.programs(["slimps_" + name])["slimps_" + name]
        os.execve(path, ["slimps_" + name] + arguments, {"DMLC_ROLE": name, **os.environ})

    return become


def tool(module):
    def run(arguments, installation):
        sys.path.insert(0, os.path.join(installation.folder, "tools"))
        return importlib.import_module(module).main(arguments)

    return run


COMMANDS = {
    "demo": lambda arguments, installation: demo.main(
        arguments, lambda given: launch(given, installation)
    ),
    "launch": launch,
    "run": run_part,
    "status": lambda arguments, installation: watch_commands.status(arguments),
    "top": lambda arguments, installation: watch_commands.top(arguments),
    "keygen": keygen,
    "checkpoint": lambda arguments, installation: checkpoint.main(arguments),
    "trace": lambda arguments, installation: job_trace.main(arguments),
    "agent": lambda arguments, installation: agent.main(),
    "plan": tool("plan.plan_command"),
    "bench": tool("bench.bench_command"),
    "scheduler": program("scheduler"),
    "server": program("server"),
}


def main(arguments, installation=None):
    installation = installation or Installation()
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments == ["--version"]:
        print("slimps " + installation.version())
        return 0
    arguments = with_home(arguments)
    if arguments[0] not in COMMANDS:
        print("slimps: unknown command \"%s\"\n\n%s" % (arguments[0], USAGE), file=sys.stderr)
        return 2
    return COMMANDS[arguments[0]](arguments[1:], installation)


def flush(status):
    """Writes out stdout. After a signal this ends the process if nobody reads stdout."""
    last = threading.Timer(job_launch.PATIENCE, os._exit, [status])
    last.daemon = True
    if status is not None and status > 128:
        last.start()
    try:
        sys.stdout.flush()
    finally:
        last.cancel()


def guarded(body):
    """Calls body() and returns its exit status. Errors for the user become one line.

    That includes stdout as a closed pipe, or a full disk.
    """
    try:
        try:
            status = body()
        except KeyboardInterrupt:
            status = 130
        flush(status)
        return status
    except errors.LaunchError as error:
        print("slimps: %s" % error, file=sys.stderr)
        return 1
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
