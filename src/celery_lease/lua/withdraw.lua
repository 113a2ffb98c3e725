-- Takes back an acquire whose answer never came, and writes down the skip that it became.
--
-- A frozen server carries out what lies in its socket once it wakes, long after the caller went away as
-- `lock_unavailable`. Without this, such a lease would belong to nobody and block its job until it ends.
--
-- KEYS[1] cron:{name}         hash, expires   the lease
-- KEYS[2] cron:{name}:done    sorted set      also the withdrawn tokens, scored by microseconds
-- KEYS[3] cron:{name}:ledger  hash            counters and the open run
-- KEYS[4] cron:{name}:runs    stream          run records
-- ARGV[1] token               as presented to acquire
-- ARGV[2] history             run records to keep, about
-- ARGV[3] keep                milliseconds after which the job's other keys may go; 0 = never
-- ARGV[4] since               ISO 8601, UTC, by the caller's clock: when it was skipped; "" = it was not, it
--                             is a copy of a message and will ask again
-- ARGV[5] delivery            "task id/retries", or ""
-- ARGV[6] remembered          what the delivery is remembered as, see acquire
-- ARGV[7...] holder           field, value, ...: task, task_id, retries, worker, host, pid
--
-- Returns {"withdrawn"}; also when asked again, which then writes nothing.
local lease, done_key, ledger, runs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, history, keep_ms, since = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local delivery, remembered = ARGV[5], ARGV[6]
local micros = server_time()

-- The acquire may still lie in another connection's buffer, behind this: it must find its token here.
if redis.call('ZADD', done_key, micros, withdrawn_mark(token)) == 0 then return {'withdrawn'} end
local held = redis.call('TYPE', lease).ok == 'hash' and hash(lease) or {}
if held.token == token then
  redis.call('DEL', lease)
  if redis.call('HGET', ledger, 'open_fence') == held.fence then close_open_run(ledger) end
end
if since == '' then return {'withdrawn'} end

-- A copy of the message has carried it out meanwhile, or is at it.
local is_own = held.token ~= token and held.task_id and delivery == held.task_id .. '/' .. (held.retries or '0')
if is_own or (delivery ~= '' and redis.call('ZSCORE', done_key, remembered)) then return {'withdrawn'} end

-- It may have been refused, and only the reply have been lost: that skip is on record.
local attempt = string.sub(token, 1, 8)
for _, entry in ipairs(redis.call('XREVRANGE', runs, '+', '-', 'COUNT', 100)) do
  local fields = entry[2]
  for i = 1, #fields, 2 do
    if fields[i] == 'attempt' and fields[i + 1] == attempt then return {'withdrawn'} end
  end
end
record(ledger, runs, history, 'skipped_lock_unavailable', append({'ended', since}, 7))
if delivery ~= '' then finish_delivery(done_key, micros, remembered) end
count_skip(ledger, since)
keep_for(keep_ms, {done_key, ledger, runs})
return {'withdrawn'}
