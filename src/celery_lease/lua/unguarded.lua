-- Writes down a run that went without a lease, once it has ended. It is a real run if it came to its end.
--
-- KEYS[1] cron:{name}:ledger  hash            counters and the open run
-- KEYS[2] cron:{name}:runs    stream          run records
-- ARGV[1] fence               that its writes carried
-- ARGV[2] history             run records to keep, about
-- ARGV[3] keep                milliseconds after which the job's other keys may go; 0 = never
-- ARGV[4] outcome             how the body ended: unguarded, failed, dry_run
-- ARGV[5] worked              units of work done, an integer
-- ARGV[6] backlog             what is left, an integer, or "" when the job did not say
-- ARGV[7...] facts            field, value, ...: task, worker, host, pid, since, error
--
-- Returns {"recorded"}.
local ledger, runs = KEYS[1], KEYS[2]
local fence, history, keep_ms, outcome, worked, backlog = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local micros, now = server_time()
record(ledger, runs, history, outcome, append({'fence', fence, 'ended', now, 'worked', worked, 'backlog', backlog,
  'unguarded', '1'}, 7))
count_duration(ledger, (micros - tonumber(fence)) / 1000000)
if outcome == 'unguarded' then
  redis.call('HSET', ledger, 'last_ran', now, 'streak', 0)
  if tonumber(worked) > 0 then redis.call('HSET', ledger, 'last_worked', now) end
end
if backlog ~= '' then redis.call('HSET', ledger, 'backlog', backlog) end
keep_for(keep_ms, {ledger, runs})
return {'recorded'}
