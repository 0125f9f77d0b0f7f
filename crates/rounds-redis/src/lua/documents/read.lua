-- KEYS: document. Returns its fields.
return redis.call('HMGET', KEYS[1], 'v', 'c', 'd', 'u')
