-- KEYS: claim, waiters. ARGV: fence, F or X (the state after release), 1 to leave the claim running if it has waiters,
-- instance.
if ARGV[3] == '1' then
  -- The calling instance has checked its own waiters already.
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(clock()))
  redis.call('ZREM', KEYS[2], ARGV[4])
  if redis.call('ZCARD', KEYS[2]) > 0 then return 1 end
end
local known = redis.call('HMGET', KEYS[1], 's', 'f')
if known[1] == 'R' and known[2] == ARGV[1] then
  redis.call('HSET', KEYS[1], 's', ARGV[2])
  redis.call('HDEL', KEYS[1], 'a', 'l', 'n')
end
return 0
