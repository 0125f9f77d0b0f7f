-- KEYS: document, the due times of its kind. ARGV: member there. Returns whether there was one.
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('DEL', KEYS[1])
