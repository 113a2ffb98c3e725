-- Writes down a message that nobody tried to carry out.
--
-- KEYS[1] cron:{name}:ledger  hash            counters and the open run
-- KEYS[2] cron:{name}:runs    stream          run records
-- ARGV[1] history             run records to keep, about
-- ARGV[2] keep                milliseconds after which the job's other keys may go; 0 = never
-- ARGV[3] outcome             expired
-- ARGV[4...] facts            field, value, ...: task, task_id, worker, slot
--
-- Returns {"noted"}.
local ledger, runs = KEYS[1], KEYS[2]
local _, now = server_time()
record(ledger, runs, ARGV[1], ARGV[3], append({'ended', now}, 4))
keep_for(ARGV[2], {ledger, runs})
return {'noted'}
