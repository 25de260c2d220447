# SPDX-License-Identifier: Apache-2.0
"""What an engine that has started this process says of it, in variables. Pure.

torchrun           RANK, WORLD_SIZE, LOCAL_RANK, GROUP_RANK, TORCHELASTIC_*
mpirun of OpenMPI  OMPI_COMM_WORLD_*
srun               SLURM_PROCID, SLURM_STEP_*, SLURM_RESTART_COUNT
mpiexec of MPICH   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS; others: PMIX_RANK
Kubernetes         JOB_COMPLETION_INDEX of an Indexed Job; the number at the end of a pod's name
"""

import dataclasses
import re

from slimps_launch import errors


@dataclasses.dataclass(frozen=True)
class Seat:
    """This process among those of an engine. All numbers begin with 0."""

    engine: str
    rank: int
    size: int  # 0: the engine does not say
    local_rank: int
    local_size: int
    node: int
    nodes: int  # 0: the engine does not say
    restart: int = 0
    # Names this start of the job; another start has another name, where the engine says one.
    start: str = ""


def _number(environment, name, default=None):
    text = environment.get(name, "")
    if not text and default is not None:
        return default
    try:
        return int(text)
    except ValueError:
        raise errors.LaunchError(
            "%s=%s: expected a number, which the engine sets" % (name, text)
        ) from None


def _torchrun(get, number):
    if not get("TORCHELASTIC_RUN_ID"):
        return None
    restart = number("TORCHELASTIC_RESTART_COUNT", 0)
    return Seat(
        "torchrun",
        number("RANK"),
        number("WORLD_SIZE"),
        number("LOCAL_RANK"),
        number("LOCAL_WORLD_SIZE"),
        number("GROUP_RANK"),
        number("GROUP_WORLD_SIZE", 1),
        restart,
        "slimps/%s/%d" % (get("TORCHELASTIC_RUN_ID"), restart),
    )


def _evenly(engine, rank, size, local_rank, local_size, start):
    """A seat where the engine does not number the nodes, but fills one after the other evenly."""
    even = size % local_size == 0 and rank % local_size == local_rank
    nodes = size // local_size if even else 0
    node = rank // local_size
    return Seat(engine, rank, size, local_rank, local_size, node, nodes, start=start)


def _openmpi(get, number):
    if not get("OMPI_COMM_WORLD_RANK"):
        return None
    return _evenly(
        "mpirun",
        number("OMPI_COMM_WORLD_RANK"),
        number("OMPI_COMM_WORLD_SIZE"),
        number("OMPI_COMM_WORLD_LOCAL_RANK"),
        number("OMPI_COMM_WORLD_LOCAL_SIZE"),
        get("PMIX_NAMESPACE"),
    )


def _slurm(get, number):
    rank = get("SLURM_PROCID")
    # A batch script has a rank, but no step. An mpirun inside of a job leaves the variables of its
    # own daemon's step.
    if not get("SLURM_STEP_ID") or rank != (get("PMI_RANK") or get("PMIX_RANK") or rank):
        return None
    tasks = get("SLURM_STEP_TASKS_PER_NODE", "1").split(",")[0]
    restart = number("SLURM_RESTART_COUNT", 0)
    return Seat(
        "srun",
        number("SLURM_PROCID"),
        number("SLURM_STEP_NUM_TASKS"),
        number("SLURM_LOCALID"),
        int(re.match(r"\d+", tasks).group()),
        number("SLURM_NODEID"),
        number("SLURM_STEP_NUM_NODES"),
        restart,
        "%s.%s.%d" % (get("SLURM_JOB_ID"), get("SLURM_STEP_ID"), restart),
    )


def _pmi(get, number):
    if get("PMI_RANK"):
        return _evenly(
            "mpiexec",
            number("PMI_RANK"),
            number("PMI_SIZE"),
            number("MPI_LOCALRANKID", 0),
            number("MPI_LOCALNRANKS", number("PMI_SIZE")),
            get("PMI_JOBID"),
        )
    if get("PMIX_RANK"):
        # PMIx itself says no more than the rank in variables.
        return Seat("PMIx", number("PMIX_RANK"), 0, 0, 1, 0, 1, start=get("PMIX_NAMESPACE"))
    return None


def _kubernetes(get, number):
    pod = re.search(r"-(\d+)$", get("HOSTNAME")) if get("KUBERNETES_SERVICE_HOST") else None
    if not (get("JOB_COMPLETION_INDEX") or pod):
        return None
    index = number("JOB_COMPLETION_INDEX", pod and int(pod.group(1)))
    # With an index of its own, a pod may have its node's name, which says nothing of the job.
    start = "" if get("JOB_COMPLETION_INDEX") else get("HOSTNAME")[: pod.start()]
    return Seat("Kubernetes", index, 0, 0, 1, index, 1, start=start)


def seat(environment):
    """Returns this process's Seat, or None where no engine has started it.

    LaunchError: a variable of the engine makes no sense.
    """

    def get(name, default=""):
        return environment.get(name, default)

    def number(name, default=None):
        return _number(environment, name, default)

    for engine in (_torchrun, _openmpi, _slurm, _pmi, _kubernetes):
        found = engine(get, number)
        if found is not None:
            return found
    return None


def first_host(node_list):
    """Returns the first host of Slurm's list: "r1n07-ib" of "r[1-2]n[07-12,15]-ib,login1"."""
    first = re.match(r"(\[[^\]]*\]|[^,\[])*", node_list).group()
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first)


# ---- who does what -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a process of an engine runs. A rank that is None: it runs no process of that role.

    The rank of the worker is the engine's order; the meeting (placement/meeting.py) gives its own.
    """

    workers: int
    servers: int
    scheduler: bool
    server: object = None  # the number of the server that it runs
    worker: object = None


def plan(seat_, workers=None, servers=None):
    """Returns the Plan of a seat. Counts that are not given follow from the engine's.

    Without `servers` every process runs a worker, and the first process of each node a server, too.
    With it, the first processes run servers and the others run workers.
    LaunchError: the counts do not fit together.
    """
    if servers is None or seat_.engine == "torchrun":
        if seat_.engine == "torchrun" and servers is not None:
            raise errors.LaunchError(
                "--servers %d: under torchrun each node runs one server; leave it out" % servers
            )
        if seat_.size == 0:
            raise errors.LaunchError(
                "%s does not say how many processes there are: give --workers W --servers S"
                % seat_.engine
            )
        if seat_.nodes == 0:
            raise errors.LaunchError(
                "%s: rank %d of %d processes, %d of them on this node: without --servers each node "
                "needs as many, with ranks in a row; give --servers S, and S of the processes are "
                "servers" % (seat_.engine, seat_.rank, seat_.size, seat_.local_size)
            )
        _check_size(seat_, workers, seat_.size, "%d workers" % (workers or 0))
        first = seat_.local_rank == 0
        server = seat_.node if first else None
        return Plan(seat_.size, seat_.nodes, seat_.rank == 0, server, seat_.rank)
    size = seat_.size or (workers or 0) + servers
    if workers is None:
        workers = size - servers
    _check_size(seat_, workers + servers, size, "%d workers and %d servers" % (workers, servers))
    if workers < 1:
        raise errors.LaunchError(
            "%s has started %d processes, and %d are to be servers: no worker is left"
            % (seat_.engine, size, servers)
        )
    if seat_.rank >= size:
        raise errors.LaunchError(
            "%s has started a process of rank %d; %d workers and %d servers need ranks 0 to %d"
            % (seat_.engine, seat_.rank, workers, servers, size - 1)
        )
    is_server = seat_.rank < servers
    return Plan(
        workers,
        servers,
        seat_.rank == 0,
        seat_.rank if is_server else None,
        None if is_server else seat_.rank - servers,
    )


def _check_size(seat_, wanted, size, words):
    if wanted is not None and wanted != size:
        raise errors.LaunchError(
            "%s has started %d processes, and %s need %d" % (seat_.engine, size, words, wanted)
        )
