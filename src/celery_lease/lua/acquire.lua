-- Takes the lease if it is free, and writes down what happened either way, in one round trip.
--
-- KEYS[1] cron:{name}         hash, expires   the lease
-- KEYS[2] cron:{name}:fence   string          last fence granted
-- KEYS[3] cron:{name}:slot    string          last slot done, UTC epoch seconds
-- KEYS[4] cron:{name}:done    sorted set      finished deliveries and withdrawn tokens
-- KEYS[5] cron:{name}:ledger  hash            counters and the open run
-- KEYS[6] cron:{name}:runs    stream          run records
-- ARGV[1] token               random, new at every acquire
-- ARGV[2] lease               milliseconds
-- ARGV[3] history             run records to keep, about
-- ARGV[4] keep                milliseconds after which the job's other keys may go; 0 = never
-- ARGV[5] delivery            "task id/retries", or "" for a run without a message
-- ARGV[6] redelivered         "1" when the broker marks the message as sent before, else "0"
-- ARGV[7] slot                UTC epoch seconds of the schedule's instant, or "" for a manual run
-- ARGV[8...] holder           field, value, ...: task, task_id, retries, worker, host, pid
--
-- Returns one of
--   {"granted", fence, since}           also for a repeated token: a lost reply is the same grant
--   {"locked", milliseconds left, field, value, ...}   the holder; -1 = the key has no expiry;
--                                       no fields = an unknown holder, such as an old string lock
--   {"already_done", slot}              a run for this slot or a later one was done
--   {"finished"}                        this very delivery was carried out before, or was withdrawn
--   {"live"}                            this very delivery is being carried out now
local lease, fence_key, slot_key, done_key, ledger, runs = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, lease_ms, history, keep_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local delivery, redelivered, slot = ARGV[5], ARGV[6] == '1', ARGV[7]
local micros, now = server_time()

local function refuse(outcome, about)
  -- A refusal whose reply was lost is asked again with the same token and counted once.
  local attempt = string.sub(token, 1, 8)
  if redis.call('HGET', ledger, 'last_refused') ~= attempt then
    record(ledger, runs, history, outcome, append({'ended', now, 'slot', slot, unpack(about)}, 8))
    redis.call('HSET', ledger, 'last_refused', attempt)
    if outcome == 'skipped_locked' then count_skip(ledger, now) end
    keep_for(keep_ms, {ledger, runs})
  end
end

if redis.call('ZSCORE', done_key, withdrawn_mark(token)) then return {'finished'} end
if redelivered and delivery ~= '' and redis.call('ZSCORE', done_key, delivery) then return {'finished'} end

local kind = redis.call('TYPE', lease).ok
local held = kind == 'hash' and hash(lease) or {}
if held.token == token then return {'granted', held.fence, held.since} end
if redelivered and held.task_id and delivery == held.task_id .. '/' .. (held.retries or '0') then
  return {'live'}
end

local last_slot = slot ~= '' and redis.call('GET', slot_key)
if last_slot and tonumber(slot) <= tonumber(last_slot) then
  refuse('skipped_already_done', {})
  return {'already_done', last_slot}
end

if kind ~= 'none' then
  refuse('skipped_locked', {'held_by', held.task_id or '', 'held_since', held.since or ''})
  return {'locked', redis.call('PTTL', lease), unpack(without_token(held))}
end

local last = tonumber(redis.call('GET', fence_key) or '0')
-- At least the clock: a store that was restarted empty does not hand out old fences again.
local fence = string.format('%.0f', math.max(last + 1, micros))
redis.call('HSET', lease, unpack(append({'token', token, 'fence', fence, 'since', now, 'renewed', now}, 8)))
redis.call('PEXPIRE', lease, lease_ms)
redis.call('SET', fence_key, fence)

local open = hash(ledger)
if open.open_fence then
  -- Nobody reported the end of the run before: killed, terminated, or cut off for too long.
  record(ledger, runs, history, 'abandoned', {'fence', open.open_fence, 'task_id', open.open_task_id or '',
    'worker', open.open_worker or '', 'since', open.open_since or '', 'ended', now})
end
local holder = named(8)
redis.call('HSET', ledger, 'open_fence', fence, 'open_task_id', holder.task_id or '',
  'open_worker', holder.worker or '', 'open_since', now, 'last_started', now)
keep_for(keep_ms, {fence_key, slot_key, done_key, ledger, runs})
return {'granted', fence, now}
