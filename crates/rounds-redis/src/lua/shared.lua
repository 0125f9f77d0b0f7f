-- What all steps share. A claim is one hash:
--
--   s  F free, R running, D done, X dead         f  the fence: rises whenever it is given to somebody to run
--   a  the digest of the answers (R, D)          v  what came of it, sealed (D)
--   l  until when the owner is believed (R)      p  what the token could not carry, sealed (until D)
--   n  who claimed it, to know it again (R)      u  until when it is kept
--   o  how far this server's clock is ahead of the one that u and l were read from
--
-- Times are milliseconds by the clock of whoever calls. Only what is waited for, and when a key is removed, goes by the
-- clock of this server.

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function text(number)
  return string.format('%.0f', number)
end

-- Keeps a key until then at least: what was promised before is not taken back.
local function keep(key, at)
  if redis.call('PEXPIRETIME', key) < at then
    redis.call('PEXPIREAT', key, text(at))
  end
end

-- Keeps what the token of a round could not carry, for those who run the round.
local function spill(key, now, keep_until, state)
  local offset = clock() - now
  redis.call('HSETNX', key, 's', 'F')
  redis.call('HSET', key, 'u', text(keep_until), 'o', text(offset), 'p', state)
  keep(key, keep_until + offset)
end
