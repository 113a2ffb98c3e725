-- Hands out a fence without a lease, for a run that an operator starts although the lease is held. The data
-- then refuses the writes of the older one of the two.
--
-- KEYS[1] cron:{name}:fence   string          last fence granted
--
-- Returns {fence, since}.
local micros, now = server_time()
local fence = string.format('%.0f', math.max(tonumber(redis.call('GET', KEYS[1]) or '0') + 1, micros))
redis.call('SET', KEYS[1], fence)
return {fence, now}
