-- Remembers which tasks a worker has registered.
--
-- KEYS[1] cron:{watchdog}:registered  sorted set  task -> when it was last announced, UTC epoch seconds
-- ARGV[1] keep                seconds after which a name that nobody announced again is forgotten
-- ARGV[2...] tasks
--
-- Returns {"announced"}.
local micros = server_time()
local seconds = math.floor(micros / 1000000)
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], seconds, ARGV[i]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', seconds - tonumber(ARGV[1])))
return {'announced'}
