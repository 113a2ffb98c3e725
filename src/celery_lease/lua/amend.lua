-- Corrects a run that was recorded as `ran` and whose result could then not be stored: Celery says FAILURE.
-- Records are facts and stay; the last one of a fence is the one that counts.
--
-- KEYS[1] cron:{name}:ledger  hash            counters and the open run
-- KEYS[2] cron:{name}:runs    stream          run records
-- ARGV[1] fence               as granted
-- ARGV[2] history             run records to keep, about
-- ARGV[3...] facts            field, value, ...: task, task_id, worker, since, error
--
-- Returns {"amended"}.
local ledger, runs = KEYS[1], KEYS[2]
local _, now = server_time()
record(ledger, runs, ARGV[2], 'failed', append({'fence', ARGV[1], 'ended', now, 'amends', 'ran'}, 3))
return {'amended'}
