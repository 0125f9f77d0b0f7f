-- KEYS: claim, waiters. ARGV: instance, how long a waiter counts. Returns 1 while the claim is running.
if redis.call('HGET', KEYS[1], 's') ~= 'R' then return 0 end
redis.call('ZADD', KEYS[2], text(clock() + tonumber(ARGV[2])), ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
