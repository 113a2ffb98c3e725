"""How the machine runs: Celery's own settings. Addresses come from the environment (`tasks.settings`)."""

from beat_schedule import beat_schedule as _beat_schedule
from tasks.settings import settings as _settings

broker_url = _settings().broker_url
result_backend = _settings().result_backend
lease_url = _settings().redis_url
lease_alert_urls = list(_settings().alert_urls)
beat_schedule = _beat_schedule
# Start two: one sends, the other takes over. Each slot of the schedule is run once.
beat_scheduler = "celery_lease.beat:LeasedScheduler"

# Messages are data. Pickle would let whoever can write to the broker run code in the workers.
task_serializer = "json"
result_serializer = "json"
accept_content = ["json"]

# Schedules, slots and records speak of one clock, without summer time.
enable_utc = True
timezone = "UTC"

# A message is acknowledged after its run, and goes back to the queue when the worker's process dies under it:
# a killed run is repeated. That is safe here because a lease keeps the repetition from overlapping with a run
# that still lives, and because every write carries the fence of its run.
task_acks_late = True
task_reject_on_worker_lost = True
# With late acknowledgement a prefetched message waits behind a long job; one at a time it can go to a free
# process.
worker_prefetch_multiplier = 1

# A job that runs must be told from one that waits.
task_track_started = True
# What monitors show is made of events; without these two, Flower stays empty.
worker_send_task_events = True
task_send_sent_event = True

# Nobody asks for a result after a day. What is kept longer is in the ledger.
result_expires = 24 * 3600

# --- a store that does not answer ---------------------------------------------------------------------------
#
# Every wait for the store is bounded. A store that is frozen, or gone without closing its connections, would
# otherwise hold a process for as long as the network likes: by the defaults, storing one result or publishing
# one message took more than a minute. With these settings: one result 2 s, one event 2 s, one message 6 s.
_ANSWER_SECONDS = 2.0

# The result backend.
redis_socket_timeout = _ANSWER_SECONDS
redis_socket_connect_timeout = _ANSWER_SECONDS
# A lost connection is worth one more try, not the default of twenty.
_ONCE_MORE = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}
result_backend_transport_options = {"retry_policy": _ONCE_MORE}

# The broker. A timeout this short does not disturb a worker that waits for work: it reads its connection only
# when something has arrived, and the server ends the blocking poll (BRPOP) by itself after one second.
broker_connection_timeout = _ANSWER_SECONDS
task_publish_retry_policy = _ONCE_MORE
broker_transport_options = {
    "socket_timeout": _ANSWER_SECONDS,
    "socket_connect_timeout": _ANSWER_SECONDS,
    # Redis gives a message that nobody acknowledged to another worker after this long. It has to be longer
    # than the longest run, or that worker only finds the lease taken.
    "visibility_timeout": 3600,
}
# A worker may be started before its broker.
broker_connection_retry_on_startup = True
