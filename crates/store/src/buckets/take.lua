-- Takes one token of every bucket, or none. KEYS are the buckets; ARGV has for each the number of tokens that fit, and the time in
-- microseconds in which it fills. Returns 0, or the number of the first empty bucket, from 1.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local levels, times, empty = {}, {}, 0
for i, key in ipairs(KEYS) do
  local capacity, period = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local kept = redis.call('HMGET', key, 'tokens', 'last_refill')
  local tokens, last = tonumber(kept[1]), tonumber(kept[2])
  if not tokens or not last then
    tokens, last = capacity, now
  end
  -- A clock that goes back, after a failover, adds nothing now and nothing twice when it has caught up.
  times[i] = math.max(now, last)
  levels[i] = math.min(capacity, tokens + (times[i] - last) * capacity / period)
  if levels[i] < 1 and empty == 0 then
    empty = i
  end
end
for i, key in ipairs(KEYS) do
  local tokens = levels[i]
  if empty == 0 then
    tokens = tokens - 1
  end
  redis.call('HSET', key, 'tokens', string.format('%.17g', tokens), 'last_refill', string.format('%.0f', times[i]))
  redis.call('EXPIRE', key, math.ceil(2 * tonumber(ARGV[2 * i]) / 1000000))
end
return empty
