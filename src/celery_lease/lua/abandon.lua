-- Closes the open run as `abandoned` if nobody is there any more to report its end.
--
-- The holder is missing when its lease is gone, or when the store would see it connected and does not. One
-- look proves nothing: a lease that was deleted is retaken at the next renewal, and a dropped connection
-- comes back. So it is missing at two looks, with the time between them that each of these takes. The lease
-- itself is left alone: the ledger observes.
--
-- KEYS[1] cron:{name}         hash, expires   the lease
-- KEYS[2] cron:{name}:ledger  hash            counters and the open run
-- KEYS[3] cron:{name}:runs    stream          run records
-- ARGV[1] history             run records to keep, about
-- ARGV[2] without a lease     milliseconds between the two looks
-- ARGV[3] without a connection  milliseconds between the two looks
--
-- Returns {"abandoned"}, {"missing"} when it is to be looked at again, {"open"} when it goes on, {"none"} when
-- there is no open run.
local lease, ledger, runs = KEYS[1], KEYS[2], KEYS[3]
local history, leaseless_ms, unconnected_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local micros, now = server_time()
local millis = math.floor(micros / 1000)

local open = hash(ledger)
if not open.open_fence then return {'none'} end
local held = redis.call('TYPE', lease).ok == 'hash' and hash(lease) or {}
local has_lease = held.fence == open.open_fence
local unconnected = has_lease and held.alive and subscribers(held.alive) == 0
if has_lease and not unconnected then
  redis.call('HDEL', ledger, 'open_missing')
  return {'open'}
end
-- Of this run, and missing for this reason: another one counts from its own first look.
local reason = open.open_fence .. (unconnected and ':unconnected:' or ':leaseless:')
local missing = open.open_missing or ''
if string.sub(missing, 1, #reason) ~= reason then
  redis.call('HSET', ledger, 'open_missing', reason .. string.format('%.0f', millis))
  return {'missing'}
end
local waits = unconnected and unconnected_ms or leaseless_ms
if millis - tonumber(string.sub(missing, #reason + 1)) < waits then return {'missing'} end
close_abandoned(ledger, runs, history, open, now)
redis.call('HDEL', ledger, 'open_missing')
return {'abandoned'}
