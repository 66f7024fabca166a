"""Durable work: jobs in a store that outlives their clients, and workers that execute them.

    from sandtimer import jobs

    record = jobs.run({"command": ["make", "test"], "wall_ms": "10m"})    # execute it here, and wait
    jobs.submit({"handler": "train", "input": {"rate": 0.1}, "queue": "gpu"})
    jobs.work(slots=4, queues=["gpu"], handlers={"train": train})         # until SIGTERM or Ctrl-C

The functions are the methods of a `Jobs` without arguments: the store of `sandtimer jobs`, which is
a directory of this machine or a NATS server (SANDTIMER_STORE), for any number of processes. Each
has an awaited form with an `a` before its name (`await_` for `wait`), except `work`, which is a
program of its own.

A spec is a dictionary, or the path of a TOML or JSON file. The command or code of a job runs in a
sandbox of the worker's engine, as with `sandtimer run`. A handler is a function that the worker
has; it is called with the `input` of the job in a parked child of the worker's sandbox, as with
`Sandbox.run`. The process of the worker executes nothing of a job and only waits: a deadline ends a
handler whatever it does, together with all processes that it has started.
"""

from ._handler import Handler
from ._records import Job, JobBreaker, JobEvent, JobFile, JobFileRefused, JobLog, JobQueue, JobRecord, JobResult, JobSchedule, JobVerdict, JobWebhook, JobWorker, Submitted
from ._store import Jobs
from ._worker import Worker

_default = Jobs()

submit = _default.submit
asubmit = _default.asubmit
submit_many = _default.submit_many
asubmit_many = _default.asubmit_many
list = _default.list
alist = _default.alist
show = _default.show
ashow = _default.ashow
wait = _default.wait
await_ = _default.await_
wait_many = _default.wait_many
await_many = _default.await_many
watch = _default.watch
awatch = _default.awatch
read_log = _default.read_log
aread_log = _default.aread_log
files = _default.files
afiles = _default.afiles
read_file = _default.read_file
aread_file = _default.aread_file
cancel = _default.cancel
acancel = _default.acancel
retry = _default.retry
aretry = _default.aretry
requeue_dead = _default.requeue_dead
arequeue_dead = _default.arequeue_dead
purge = _default.purge
apurge = _default.apurge
pause = _default.pause
apause = _default.apause
resume = _default.resume
aresume = _default.aresume
queues = _default.queues
aqueues = _default.aqueues
schedule = _default.schedule
aschedule = _default.aschedule
schedules = _default.schedules
aschedules = _default.aschedules
pause_schedule = _default.pause_schedule
apause_schedule = _default.apause_schedule
resume_schedule = _default.resume_schedule
aresume_schedule = _default.aresume_schedule
unschedule = _default.unschedule
aunschedule = _default.aunschedule
breakers = _default.breakers
abreakers = _default.abreakers
workers = _default.workers
aworkers = _default.aworkers
redeliver = _default.redeliver
aredeliver = _default.aredeliver
run = _default.run
arun = _default.arun
work = _default.work

__all__ = [
    "Handler",
    "Job",
    "JobBreaker",
    "JobEvent",
    "JobFile",
    "JobFileRefused",
    "JobLog",
    "JobQueue",
    "JobRecord",
    "JobResult",
    "JobSchedule",
    "JobVerdict",
    "JobWebhook",
    "JobWorker",
    "Jobs",
    "Submitted",
    "Worker",
    "abreakers",
    "acancel",
    "afiles",
    "alist",
    "apause",
    "apause_schedule",
    "apurge",
    "aqueues",
    "aread_file",
    "aread_log",
    "aredeliver",
    "arequeue_dead",
    "aresume",
    "aresume_schedule",
    "aretry",
    "arun",
    "aschedule",
    "aschedules",
    "ashow",
    "asubmit",
    "asubmit_many",
    "aunschedule",
    "await_",
    "await_many",
    "awatch",
    "aworkers",
    "breakers",
    "cancel",
    "files",
    "list",
    "pause",
    "pause_schedule",
    "purge",
    "queues",
    "read_file",
    "read_log",
    "redeliver",
    "requeue_dead",
    "resume",
    "resume_schedule",
    "retry",
    "run",
    "schedule",
    "schedules",
    "show",
    "submit",
    "submit_many",
    "unschedule",
    "wait",
    "wait_many",
    "watch",
    "work",
    "workers",
]
