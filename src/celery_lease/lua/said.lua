-- Confirms that alerts have been said.
--
-- KEYS[1] cron:{watchdog}:alerts  hash        as in alert.lua
-- ARGV[...] said              kind, alert, kind, alert, ..., as handed out by alert.lua
--
-- Returns {"said"}.
local micros = server_time()
local millis = math.floor(micros / 1000)
for i = 1, #ARGV, 2 do
  local kind, alert = ARGV[i], ARGV[i + 1]
  local json = redis.call('HGET', KEYS[1], alert)
  if json and kind == 'resolved' then
    redis.call('HDEL', KEYS[1], alert)
  elseif json then
    local state = cjson.decode(json)
    state.said, state.claimed = millis, 0
    redis.call('HSET', KEYS[1], alert, cjson.encode(state))
  end
end
return {'said'}
