-- Compares what is wrong now with what was wrong before, and hands out what is to be said about it.
--
-- Any number of watchdogs may ask: each message goes to one of them, which confirms with said.lua that it
-- has been sent. What is not confirmed is handed out again.
--
-- KEYS[1] cron:{watchdog}:alerts  hash        alert -> JSON: opened, said, claimed (UTC epoch ms), what
-- ARGV[1] remind              milliseconds after which an open alert is said again
-- ARGV[2] patience            milliseconds that a watchdog has for sending
-- ARGV[3...] alerts           alert, what, alert, what, ...: all that is wrong now
--
-- Returns {kind, alert, what, opened, kind, alert, ...} with kind = opened, reminded or resolved.
local remind, patience = tonumber(ARGV[1]), tonumber(ARGV[2])
local micros = server_time()
local millis = math.floor(micros / 1000)
local answer = {}

local function hand_out(kind, alert, state)
  if millis - state.claimed < patience then return end
  state.claimed = millis
  for _, part in ipairs({kind, alert, state.what, string.format('%.0f', state.opened)}) do
    answer[#answer + 1] = part
  end
end

local before, now_open = hash(KEYS[1]), {}
for i = 3, #ARGV, 2 do
  local alert, what = ARGV[i], ARGV[i + 1]
  local state = before[alert] and cjson.decode(before[alert]) or {opened = millis, said = 0, claimed = 0}
  now_open[alert] = true
  state.what, state.resolved = what, nil
  if state.said == 0 then
    hand_out('opened', alert, state)
  elseif millis - state.said >= remind then
    hand_out('reminded', alert, state)
  end
  redis.call('HSET', KEYS[1], alert, cjson.encode(state))
end
for alert, json in pairs(before) do
  if not now_open[alert] then
    local state = cjson.decode(json)
    if state.said == 0 then
      redis.call('HDEL', KEYS[1], alert)  -- nobody heard of it
    else
      state.resolved = true
      hand_out('resolved', alert, state)
      redis.call('HSET', KEYS[1], alert, cjson.encode(state))
    end
  end
end
return answer
