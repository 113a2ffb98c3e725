-- Gives the lease back if it is still ours and closes the run in the ledger, in one round trip.
--
-- KEYS[1] cron:{name}         hash, expires   the lease
-- KEYS[2] cron:{name}:fence   string          last fence granted
-- KEYS[3] cron:{name}:slot    hash            schedule entry -> last slot done, UTC epoch seconds
-- KEYS[4] cron:{name}:done    sorted set      finished deliveries and withdrawn tokens, by microseconds
-- KEYS[5] cron:{name}:ledger  hash            counters and the open run
-- KEYS[6] cron:{name}:runs    stream          run records
-- ARGV[1] token               as acquired
-- ARGV[2] fence               as granted
-- ARGV[3] history             run records to keep, about
-- ARGV[4] keep                milliseconds after which the job's other keys may go; 0 = never
-- ARGV[5] remembered          what the delivery is remembered as, see acquire; "" = there is none
-- ARGV[6] slot                UTC epoch seconds, or ""
-- ARGV[7] entry               of the schedule that the slot is of, or ""
-- ARGV[8] outcome             how the body ended: ran, failed, retried, skipped_..., lost
-- ARGV[9] worked              units of work done, an integer
-- ARGV[10] backlog            what is left, an integer, or "" when the job did not say
-- ARGV[11] late               "1" when the body ended under a trusted lease and only this call is late:
--                             an owner who came since does not make the run `lost`
-- ARGV[12...] facts           field, value, ...: task, task_id, worker, since, error, ...
--
-- Returns {"released", outcome} when the lease was ours or free, else {"not_owner", "lost"}.
-- Asked again after a lost reply, it answers the same and writes nothing.
local lease, fence_key, slot_key, done_key, ledger, runs = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, fence, history, keep_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local remembered, slot, entry, outcome = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local worked, backlog, late = ARGV[9], ARGV[10], ARGV[11] == '1'
-- How the run ended decides that, also if its lease was lost before.
local comes_again = outcome == 'retried'
local micros, now = server_time()

local before = redis.call('HMGET', ledger, 'closed_fence', 'closed_outcome', 'open_fence')
if before[1] == fence then
  return {before[2] == 'lost' and 'not_owner' or 'released', before[2]}
end

-- How this run was closed, if other runs have been closed since; looked for only where the lease is not ours.
local function closed_before()
  for _, entry in ipairs(redis.call('XREVRANGE', runs, '+', '-', 'COUNT', 100)) do
    local fields = entry[2]
    local closed = {}
    for i = 1, #fields, 2 do closed[fields[i]] = fields[i + 1] end
    if closed.fence == fence and closed.outcome ~= 'abandoned' then return closed.outcome end
  end
end

local kind = redis.call('TYPE', lease).ok
if kind == 'hash' and redis.call('HGET', lease, 'token') == token then
  redis.call('DEL', lease)
else
  local closed = closed_before()
  if closed then return {closed == 'lost' and 'not_owner' or 'released', closed} end
  local is_taken = kind ~= 'none' or tonumber(redis.call('GET', fence_key) or '0') > tonumber(fence)
  if is_taken and not late then outcome = 'lost' end
end

count_duration(ledger, (micros - tonumber(fence)) / 1000000)
record(ledger, runs, history, outcome, append({'fence', fence, 'ended', now, 'slot', slot, 'worked', worked,
  'backlog', backlog}, 12))
if tonumber(fence) > tonumber(before[1] or '0') then
  -- Of the newest run only: that is the one which a renewal still under way could revive.
  redis.call('HSET', ledger, 'closed_fence', fence, 'closed_outcome', outcome)
end
if before[3] == fence then close_open_run(ledger) end
if outcome == 'ran' then
  redis.call('HSET', ledger, 'last_ran', now, 'streak', 0)
  if tonumber(worked) > 0 then redis.call('HSET', ledger, 'last_worked', now) end
  if slot ~= '' and tonumber(slot) > tonumber(redis.call('HGET', slot_key, entry) or '0') then
    redis.call('HSET', slot_key, entry, slot)
  end
end
if outcome == 'skipped_locked' or outcome == 'skipped_lock_unavailable' then count_skip(ledger, now) end
if outcome ~= 'lost' and backlog ~= '' then redis.call('HSET', ledger, 'backlog', backlog) end
if remembered ~= '' and not comes_again then
  -- A retried delivery is not finished until its next message is sent, which comes after this.
  finish_delivery(done_key, micros, remembered)
end
keep_for(keep_ms, {fence_key, slot_key, done_key, ledger, runs})
return {outcome == 'lost' and 'not_owner' or 'released', outcome}
