-- Shows who holds the lease. Changes nothing.
--
-- KEYS[1] cron:{name}         hash, expires   the lease
--
-- Returns {} when it is free, else {milliseconds left, field, value, ...}: the holder without the token,
-- with `token_prefix`, its first eight characters, in its place, and with `connected`, "1" or "0", where that
-- can be told. -1 = the key has no expiry; no fields = an unknown holder, such as an old string lock.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return {} end
local held = kind == 'hash' and hash(KEYS[1]) or {}
local shown = without_token(held)
if held.token then
  shown[#shown + 1] = 'token_prefix'
  shown[#shown + 1] = string.sub(held.token, 1, 8)
end
local connected = held.alive and subscribers(held.alive)
if connected then
  shown[#shown + 1] = 'connected'
  shown[#shown + 1] = connected > 0 and '1' or '0'
end
return {redis.call('PTTL', KEYS[1]), unpack(shown)}
