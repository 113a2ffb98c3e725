-- Remembers since when each entry has been in the schedule, so that a job that never ran has a first day.
--
-- KEYS[1] cron:{watchdog}:seen  hash          entry -> "since last", UTC epoch milliseconds;
--                                             "" -> when anybody last looked at any schedule
-- ARGV[1] gap                 milliseconds: an entry counts as new when it was missing so long in the schedule
--                             while others were seen there
-- ARGV[2...] entries
--
-- Returns {now, entry, since, entry, since, ...}, UTC epoch milliseconds.
local seen = KEYS[1]
local millis, gap = math.floor(server_time() / 1000), tonumber(ARGV[1])
local now = string.format('%.0f', millis)
local looked = tonumber(redis.call('HGET', seen, '') or now)
local answer = {now}
for i = 2, #ARGV do
  local since, last = string.match(redis.call('HGET', seen, ARGV[i]) or '', '^(%d+) (%d+)$')
  if not since or looked - tonumber(last) > gap then since = now end
  redis.call('HSET', seen, ARGV[i], since .. ' ' .. now)
  answer[#answer + 1] = ARGV[i]
  answer[#answer + 1] = since
end
redis.call('HSET', seen, '', now)
return answer
