-- Takes the lease away from its holder, for an operator who has looked at it, and writes that down.
--
-- The fence moves on, so that a holder that lives after all finds the lease lost and does not retake it.
--
-- KEYS[1] cron:{name}         hash, expires   the lease
-- KEYS[2] cron:{name}:fence   string          last fence granted
-- KEYS[3] cron:{name}:ledger  hash            counters and the open run
-- KEYS[4] cron:{name}:runs    stream          run records
-- ARGV[1] token prefix        as the operator saw it; "" for an unknown holder, such as an old string lock
-- ARGV[2] force               "1" = also when the holder is connected, or is unknown
-- ARGV[3] history             run records to keep, about
-- ARGV[4...] facts            field, value, ...: who breaks it
--
-- Returns one of
--   {"broken", told}    the lease is free; told = connections of the holder that were told so
--   {"free"}            nobody holds it
--   {"changed"}         somebody else holds it than the operator saw
--   {"connected"}       its process is connected: only with force
--   {"unknown"}         no lease of this library, so nothing tells whether it is in use: only with force
local lease, fence_key, ledger, runs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, force, history = ARGV[1], ARGV[2] == '1', ARGV[3]
local micros, now = server_time()

local kind = redis.call('TYPE', lease).ok
if kind == 'none' then return {'free'} end
local held = kind == 'hash' and hash(lease) or {}
if string.sub(held.token or '', 1, #prefix) ~= prefix or (held.token and prefix == '') then return {'changed'} end
local connected = held.alive and subscribers(held.alive) or 0
if not force then
  if not held.token then return {'unknown'} end
  if connected > 0 then return {'connected'} end
end

redis.call('DEL', lease)
local fence = math.max(tonumber(redis.call('GET', fence_key) or '0') + 1, micros)
redis.call('SET', fence_key, string.format('%.0f', fence))
-- An audit record, and no record of the run: that one ends as `lost` or `abandoned`.
record(ledger, runs, history, 'broken', append({'ended', now, 'held_by', held.task_id or '',
  'held_since', held.since or '', 'held_fence', held.fence or '', 'connected', connected}, 4))
-- Anything on its channel makes the holder look at its lease at once.
local told = connected > 0 and redis.pcall('SPUBLISH', held.alive, 'broken')
return {'broken', type(told) == 'number' and told or 0}
