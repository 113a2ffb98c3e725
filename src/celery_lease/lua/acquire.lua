-- Takes the lease if it is free or its holder is dead, and writes down what happened, in one round trip.
--
-- KEYS[1] cron:{name}         hash, expires   the lease
-- KEYS[2] cron:{name}:fence   string          last fence granted
-- KEYS[3] cron:{name}:slot    hash            schedule entry -> last slot done, UTC epoch seconds
-- KEYS[4] cron:{name}:done    sorted set      finished deliveries and withdrawn tokens
-- KEYS[5] cron:{name}:ledger  hash            counters and the open run
-- KEYS[6] cron:{name}:runs    stream          run records
-- ARGV[1] token               random, new at every acquire
-- ARGV[2] lease               milliseconds
-- ARGV[3] history             run records to keep, about
-- ARGV[4] keep                milliseconds after which the job's other keys may go; 0 = never
-- ARGV[5] delivery            "task id/retries", or "" for a run without a message
-- ARGV[6] remembered          what the delivery is remembered as: the same, or "task id/retries#message" where
--                             the broker tells a copy of a message from another one with the same id
-- ARGV[7] copy                "" = the message itself; "redelivered" = the broker marks it as sent before;
--                             else a copy that was parked, by the `parked` it was sent with
-- ARGV[8] slot                UTC epoch seconds of the schedule's instant, or "" for a manual run
-- ARGV[9] entry               of the schedule that the slot is of, or ""
-- ARGV[10] channel            which this process subscribes to while it lives, or ""
-- ARGV[11] grace              milliseconds that a holder may be disconnected
-- ARGV[12] patient            "1" when the caller would look again, "0" when this answer is its last,
--                             "standby" when it looks as long as it lives: a refusal is then no skip
-- ARGV[13] park               milliseconds for which a copy of a live delivery is to be parked
-- ARGV[14] cap                deaths of one delivery after which it is not tried again
-- ARGV[15...] holder          field, value, ...: task, task_id, retries, worker, host, pid
--
-- Returns one of
--   {"granted", fence, since, alive}   also for a repeated token: a lost reply is the same grant;
--                                      alive = "1" when the store sees the caller's channel
--   {"waiting", milliseconds left, field, value, ...}  the holder is not connected: look again soon
--   {"locked", milliseconds left, field, value, ...}   the holder; -1 = the key has no expiry;
--                                      no fields = an unknown holder, such as an old string lock
--   {"already_done", slot}             a run for this slot or a later one of the entry was done
--   {"finished"}                       this very delivery was carried out before, or was withdrawn
--   {"live", parked}                   this very delivery is being carried out now; `parked` is what to park
--                                      this copy as, or "" when another copy is parked already
--   {"capped", deaths}                 this delivery died with its worker too often; recorded as failed
local lease, fence_key, slot_key, done_key, ledger, runs = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, lease_ms, history, keep_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local delivery, remembered, copy, slot, entry = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local channel, grace_ms, patient, standby = ARGV[10], tonumber(ARGV[11]), ARGV[12] ~= '0', ARGV[12] == 'standby'
local park_ms, cap = tonumber(ARGV[13]), tonumber(ARGV[14])
local holder = named(15)
local micros, now = server_time()
local millis = math.floor(micros / 1000)

local kind = redis.call('TYPE', lease).ok
local held = kind == 'hash' and hash(lease) or {}

local attempt = string.sub(token, 1, 8)
-- The last seven, each in front of the ones before: a refusal whose reply was lost is asked again within seconds.
local last_refused = redis.call('HGET', ledger, 'last_refused') or ''
local is_refused = string.find(last_refused, attempt, 1, true)

local function refuse(outcome, about)
  if standby then return end
  -- Asked again with the same token, it is counted once.
  if not is_refused then
    record(ledger, runs, history, outcome,
      append({'ended', now, 'slot', slot, 'attempt', attempt, unpack(about)}, 15))
    redis.call('HSET', ledger, 'last_refused', string.sub(attempt .. ' ' .. last_refused, 1, 62))
    if outcome == 'skipped_locked' then count_skip(ledger, now) end
    if delivery ~= '' then finish_delivery(done_key, micros, remembered) end
    keep_for(keep_ms, {done_key, ledger, runs})
  end
end

-- "connected", "gone" (looks go on), "dead" (gone for the whole grace), or "unknown" (the expiry decides).
local function state_of_holder()
  local connected = held.alive and subscribers(held.alive)
  if not connected then return 'unknown' end
  if connected > 0 then
    redis.call('HDEL', lease, 'gone_since', 'gone_seen')
    return 'connected'
  end
  -- A gap between looks starts the grace anew: nobody knows what was in between. So does a clock set back.
  local since, seen = tonumber(held.gone_since), tonumber(held.gone_seen)
  if not since or seen > millis or millis - seen > 0.3 * grace_ms then since = millis end
  redis.call('HSET', lease, 'gone_since', string.format('%.0f', since), 'gone_seen', string.format('%.0f', millis))
  return millis - since >= grace_ms and 'dead' or 'gone'
end

-- A copy of the delivery that is under way. One parked copy is enough to run it if the original dies.
local function park()
  local parked = tonumber(held.parked)
  local is_the_parked_one = copy == held.parked
  if held.parked_by == attempt then return {'live', held.parked} end
  if parked and not is_the_parked_one and millis < parked + 2 * park_ms then return {'live', ''} end
  parked = string.format('%.0f', millis + park_ms)
  redis.call('HSET', lease, 'parked', parked, 'parked_by', attempt)
  return {'live', parked}
end

if redis.call('ZSCORE', done_key, withdrawn_mark(token)) then return {'finished'} end
-- A message that nothing marks as sent before may be a new one with an id that was used before.
local is_told_apart = copy ~= '' or remembered ~= delivery
if is_told_apart and redis.call('ZSCORE', done_key, remembered) then return {'finished'} end
if held.token == token then
  redis.call('PEXPIRE', lease, lease_ms)
  return {'granted', held.fence, held.since, record_alive(lease, channel)}
end

local last_slot = slot ~= '' and redis.call('HGET', slot_key, entry)
if last_slot and tonumber(slot) <= tonumber(last_slot) then
  refuse('skipped_already_done', {})
  return {'already_done', last_slot}
end

-- The skip is on record: it stays one, also if the lease has come free since then.
if is_refused then
  return {'locked', redis.call('PTTL', lease), unpack(without_token(held))}
end

if kind ~= 'none' then
  local state = state_of_holder()
  -- Whether it is the copy or the message itself: that may have waited in a busy worker while its copy ran.
  local is_own = delivery ~= '' and held.task_id and delivery == held.task_id .. '/' .. (held.retries or '0')
  if is_own and (state == 'connected' or state == 'unknown') then return park() end
  if state == 'gone' and patient then
    return {'waiting', redis.call('PTTL', lease), unpack(without_token(held))}
  end
  if state ~= 'dead' then
    refuse('skipped_locked', {'held_by', held.task_id or '', 'held_since', held.since or ''})
    return {'locked', redis.call('PTTL', lease), unpack(without_token(held))}
  end
  redis.call('DEL', lease)
end

local open = hash(ledger)
if open.open_fence then close_abandoned(ledger, runs, history, open, now) end
local deaths = deaths_of(ledger, delivery)
if deaths >= cap then
  record(ledger, runs, history, 'failed', append({'ended', now, 'error', 'delivery cap', 'deaths', deaths}, 15))
  finish_delivery(done_key, micros, remembered)
  return {'capped', deaths}
end

-- At least the clock: a store that was restarted empty does not hand out old fences again.
local fence = string.format('%.0f', math.max(tonumber(redis.call('GET', fence_key) or '0') + 1, micros))
redis.call('HSET', lease, unpack(append({'token', token, 'fence', fence, 'since', now, 'renewed', now}, 15)))
redis.call('PEXPIRE', lease, lease_ms)
redis.call('SET', fence_key, fence)
redis.call('HSET', ledger, 'open_fence', fence, 'open_task_id', holder.task_id or '', 'open_delivery', delivery,
  'open_worker', holder.worker or '', 'open_since', now, 'last_started', now)
keep_for(keep_ms, {fence_key, slot_key, done_key, ledger, runs})
return {'granted', fence, now, record_alive(lease, channel)}
