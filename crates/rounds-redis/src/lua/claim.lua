-- KEYS: claim, waiters. ARGV: answers, now, kept until, lease until, F or X for a claim whose owner is lost, claimant,
-- instance, how long a waiter counts, 1 if a new record fits into the caller's share.
local answers, now, keep_until, lease_until = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local orphan, claimant = ARGV[5], ARGV[6]
local known = redis.call('HMGET', KEYS[1], 's', 'a', 'l', 'n', 'f', 'u')
local state = known[1] or 'F'
if not known[1] and ARGV[9] ~= '1' then return {'full'} end

if state == 'D' then
  if known[2] ~= answers then return {'other'} end
  return {'done', redis.call('HGET', KEYS[1], 'v')}
elseif state == 'X' then
  return {'dead'}
elseif state == 'R' then
  if known[4] == claimant then
    -- The same call again: the reply to the first was lost.
    return {'fresh', tonumber(known[5]), redis.call('HGET', KEYS[1], 'p')}
  end
  local lapsed = tonumber(known[3]) <= now
  if lapsed and orphan == 'X' then
    redis.call('HSET', KEYS[1], 's', 'X')
    redis.call('HDEL', KEYS[1], 'a', 'l', 'n')
    return {'dead'}
  end
  if known[2] ~= answers then return {'other'} end
  if not lapsed then
    redis.call('ZADD', KEYS[2], text(clock() + tonumber(ARGV[8])), ARGV[7])
    redis.call('PEXPIRE', KEYS[2], ARGV[8])
    return {'running'}
  end
elseif state ~= 'F' then
  return redis.error_reply('ERR this is not a claim')
end

local offset = clock() - now
keep_until = math.max(keep_until, tonumber(known[6] or 0))
-- The first fence is random: if this server has lost a claim, its former owner must not hold a valid fence for the new
-- claim.
local a, b, c = string.byte(claimant, 1, 3)
redis.call('HSETNX', KEYS[1], 'f', text(a * 65536 + b * 256 + c))
local fence = redis.call('HINCRBY', KEYS[1], 'f', 1)
redis.call('HSET', KEYS[1], 's', 'R', 'a', answers, 'l', text(lease_until), 'n', claimant,
  'u', text(keep_until), 'o', text(offset))
keep(KEYS[1], math.max(keep_until, lease_until) + offset)
return {'fresh', fence, redis.call('HGET', KEYS[1], 'p')}
