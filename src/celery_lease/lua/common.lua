-- Put in front of every script: what they share, so that one thing is said in one place.
-- No key is ever built from an argument.

-- The server's clock, so that no two clients ever have to agree on the time.
-- Returns: microseconds since the epoch (a number below 2^53), and the same instant as
-- "2026-09-14T12:15:03.123Z", which is what people read in HGETALL.
local function server_time()
  local time = redis.call('TIME')
  local seconds, micros = tonumber(time[1]), tonumber(time[2])
  local days, of_day = math.floor(seconds / 86400), seconds % 86400
  -- Days since the epoch to a civil date, in eras of 400 years that begin on 1 March.
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local iso = string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year, month,
    doy - math.floor((153 * mp + 2) / 5) + 1, math.floor(of_day / 3600),
    math.floor(of_day / 60) % 60, of_day % 60, math.floor(micros / 1000))
  return seconds * 1000000 + micros, iso
end

-- A hash as a table, an empty one where nothing is.
local function hash(key)
  local flat, table_ = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do table_[flat[i]] = flat[i + 1] end
  return table_
end

-- `target` followed by what ARGV holds from `first` on: field, value, field, value, ...
local function append(target, first)
  for i = first, #ARGV do target[#target + 1] = ARGV[i] end
  return target
end

-- The same part of ARGV as a table.
local function named(first)
  local table_ = {}
  for i = first, #ARGV, 2 do table_[ARGV[i]] = ARGV[i + 1] end
  return table_
end

-- What anybody may see of a holder: everything but the token, which is the proof of ownership.
local function without_token(held)
  local shown = {}
  for field, value in pairs(held) do
    if field ~= 'token' then
      shown[#shown + 1] = field
      shown[#shown + 1] = value
    end
  end
  return shown
end

-- How many connections are subscribed to a holder's channel; nil where that cannot be told: no permission,
-- a server before 7.0, a slot on its way to another node.
local function subscribers(channel)
  if channel == '' then return nil end
  local answer = redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)
  return type(answer) == 'table' and tonumber(answer[2]) or nil
end

-- Writes down whether the holder's death would be noticed, or leaves that to the expiry. Returns "1" or "0".
local function record_alive(lease, channel)
  redis.call('HDEL', lease, 'alive', 'gone_since', 'gone_seen')
  if (subscribers(channel) or 0) == 0 then return '0' end
  redis.call('HSET', lease, 'alive', channel)
  return '1'
end

-- Appends one run record and counts it. `history` is about how many records a job keeps.
local function record(ledger, runs, history, outcome, fields)
  redis.call('XADD', runs, 'MAXLEN', '~', history, '*', 'outcome', outcome, unpack(fields))
  redis.call('HINCRBY', ledger, 'total:' .. outcome, 1)
end

-- Counts a run in the histogram of durations: the buckets end at powers of two from 1/4 s to 16,384 s.
-- A fence is the server's clock at the grant, in microseconds (a little more where that clock went back).
local function count_duration(ledger, seconds)
  local bound = 0.25
  while bound < seconds and bound <= 16384 do bound = bound * 2 end
  redis.call('HINCRBY', ledger, bound > 16384 and 'took:+Inf' or string.format('took:%g', bound), 1)
  redis.call('HINCRBY', ledger, 'took_ms', math.max(0, math.floor(seconds * 1000)))
end

-- Lets the keys of a per-argument lease expire `ms` after their last run; 0 keeps them for ever.
local function keep_for(ms, keys)
  if tonumber(ms) > 0 then
    for _, key in ipairs(keys) do redis.call('PEXPIRE', key, ms) end
  end
end

-- A skip in a row of skips. `already_done` is not one: the slot's work was done.
local function count_skip(ledger, now)
  redis.call('HINCRBY', ledger, 'streak', 1)
  redis.call('HSET', ledger, 'last_skipped', now)
end

-- The open run has ended, one way or another.
local function close_open_run(ledger)
  redis.call('HDEL', ledger, 'open_fence', 'open_task_id', 'open_delivery', 'open_worker', 'open_since')
end

-- The deliveries that died with their workers, the latest ten: {{delivery, deaths}, ...}. JSON in the ledger.
local function dead_deliveries(ledger)
  return cjson.decode(redis.call('HGET', ledger, 'dead') or '[]')
end

-- How often a delivery has died so; 0 for a run without a message.
local function deaths_of(ledger, delivery)
  for _, dead in ipairs(dead_deliveries(ledger)) do
    if dead[1] == delivery then return dead[2] end
  end
  return 0
end

local function count_death(ledger, delivery)
  local latest = {{delivery, deaths_of(ledger, delivery) + 1}}
  for _, dead in ipairs(dead_deliveries(ledger)) do
    if dead[1] ~= delivery and #latest < 10 then latest[#latest + 1] = dead end
  end
  redis.call('HSET', ledger, 'dead', cjson.encode(latest))
end

-- Nobody reported the end of the open run: killed, terminated, or cut off for too long.
local function close_abandoned(ledger, runs, history, open, now)
  record(ledger, runs, history, 'abandoned', {'fence', open.open_fence, 'task_id', open.open_task_id or '',
    'worker', open.open_worker or '', 'since', open.open_since or '', 'ended', now})
  if (open.open_delivery or '') ~= '' then count_death(ledger, open.open_delivery) end
  close_open_run(ledger)
end

-- Remembers a delivery as carried out: the last 1,000 of a job, for two days at most.
local function finish_delivery(done_key, micros, delivery)
  redis.call('ZADD', done_key, micros, delivery)
  redis.call('ZREMRANGEBYRANK', done_key, 0, -1001)
  redis.call('ZREMRANGEBYSCORE', done_key, '-inf', string.format('%.0f', micros - 2 * 86400 * 1000000))
end

-- How a withdrawn acquire is remembered beside the finished deliveries; a prefix names it well enough.
local function withdrawn_mark(token)
  return 'withdrawn:' .. string.sub(token, 1, 16)
end
