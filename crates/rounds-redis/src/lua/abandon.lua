-- KEYS: claim. ARGV: the claimant, which never learned that it holds the claim. Nothing has run, so the claim becomes
-- free.
local known = redis.call('HMGET', KEYS[1], 's', 'n')
if known[1] ~= 'R' or known[2] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 's', 'F')
redis.call('HDEL', KEYS[1], 'a', 'l', 'n')
return 1
