-- Shared by all steps. A claim is one hash:
--
--   s  state: F free, R running, D done, X dead  f  the fence: incremented whenever an owner takes the claim
--   a  the digest of the answers (R, D)          v  the recorded reply or value, sealed (D)
--   l  when the owner's lease lapses (R)         p  the spilled state: what the token could not carry, sealed (until D)
--   n  the claimant, to recognise it again (R)   u  when the record expires
--   o  how far this server's clock is ahead of the clock that u and l were read from
--
-- Times are milliseconds by the caller's clock. Only the waiters, and the expiry of keys, go by this server's clock.

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function text(number)
  return string.format('%.0f', number)
end

-- Keeps a key at least until then: an expiry is never moved to an earlier time.
local function keep(key, at)
  if redis.call('PEXPIRETIME', key) < at then
    redis.call('PEXPIREAT', key, text(at))
  end
end

-- Stores the state that the token of a round could not carry, for the leg that runs the round.
local function spill(key, now, keep_until, state)
  local offset = clock() - now
  redis.call('HSETNX', key, 's', 'F')
  redis.call('HSET', key, 'u', text(keep_until), 'o', text(offset), 'p', state)
  keep(key, keep_until + offset)
end
