-- Remembers which slots the scheduler has dealt with. A slot never goes back, so a late caller does no harm.
--
-- KEYS[1] cron:{beat}:sent    hash            schedule entry -> last slot sent, UTC epoch seconds
-- ARGV[...] sent              entry, slot, entry, slot, ...; may be empty
--
-- Returns {entry, slot, entry, slot, ...}: all that is remembered now.
for i = 1, #ARGV, 2 do
  local last = tonumber(redis.call('HGET', KEYS[1], ARGV[i]))
  if not last or tonumber(ARGV[i + 1]) > last then redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
return redis.call('HGETALL', KEYS[1])
