-- Sets the lease back to its full length if it is still ours; retakes it if it is free.
--
-- KEYS[1] cron:{name}         hash, expires   the lease
-- KEYS[2] cron:{name}:fence   string          last fence granted
-- KEYS[3] cron:{name}:ledger  hash            counters and the open run
-- ARGV[1] token               as acquired
-- ARGV[2] fence               as granted
-- ARGV[3] lease               milliseconds
-- ARGV[4] channel             which this process subscribes to while it lives, or ""
-- ARGV[5...] holder           field, value, ...: what a retake writes
--
-- Returns one of, with alive = "1" when the store sees the caller's channel
--   {"renewed", alive}    it was ours
--   {"retaken", alive}    the key was gone (deleted, evicted, flushed, expired) and nobody had it since
--   {"released", "0"}     this run has been closed already; a renewal under way must not revive it
--   {"lost", "0"}         another owner has it, or had it
local lease, fence_key, ledger = KEYS[1], KEYS[2], KEYS[3]
local token, fence, lease_ms, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local _, now = server_time()

local kind = redis.call('TYPE', lease).ok
if kind == 'hash' and redis.call('HGET', lease, 'token') == token then
  redis.call('HSET', lease, 'renewed', now)
  redis.call('PEXPIRE', lease, lease_ms)
  return {'renewed', record_alive(lease, channel)}
end
if redis.call('HGET', ledger, 'closed_fence') == fence then return {'released', '0'} end
if kind ~= 'none' or tonumber(redis.call('GET', fence_key) or '0') > tonumber(fence) then return {'lost', '0'} end
redis.call('HSET', lease, unpack(append({'token', token, 'fence', fence, 'renewed', now}, 5)))
redis.call('PEXPIRE', lease, lease_ms)
redis.call('SET', fence_key, fence)
return {'retaken', record_alive(lease, channel)}
