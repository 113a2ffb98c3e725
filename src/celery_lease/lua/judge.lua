-- Writes down the slots that left no trace, each once, however many watchdogs look.
--
-- KEYS[1] cron:{name}:ledger  hash            counters and the open run
-- KEYS[2] cron:{name}:runs    stream          run records
-- ARGV[1] history             run records to keep, about
-- ARGV[2] keep                milliseconds after which the job's other keys may go; 0 = never
-- ARGV[3] until               UTC epoch seconds: every slot up to here has been judged
-- ARGV[4...] slots            UTC epoch seconds, in order: those without a trace
--
-- Returns {"judged", how many were written down}.
local ledger, runs = KEYS[1], KEYS[2]
local history, keep_ms, up_to = ARGV[1], ARGV[2], tonumber(ARGV[3])
local _, now = server_time()
local judged = tonumber(redis.call('HGET', ledger, 'judged') or '0')
local written = 0
for i = 4, #ARGV do
  if tonumber(ARGV[i]) > judged then
    record(ledger, runs, history, 'missed', {'ended', now, 'slot', ARGV[i]})
    written = written + 1
  end
end
if up_to > judged then redis.call('HSET', ledger, 'judged', ARGV[3]) end
keep_for(keep_ms, {ledger, runs})
return {'judged', written}
