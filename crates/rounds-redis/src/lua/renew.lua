-- KEYS: claim. ARGV: fence, lease until.
local known = redis.call('HMGET', KEYS[1], 's', 'f', 'u', 'o')
if known[1] ~= 'R' or known[2] ~= ARGV[1] then return 0 end
local keep_until, lease_until = tonumber(known[3]), tonumber(ARGV[2])
redis.call('HSET', KEYS[1], 'l', text(lease_until))
keep(KEYS[1], math.max(keep_until, lease_until) + tonumber(known[4]))
return 1
