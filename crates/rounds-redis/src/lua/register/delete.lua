-- ARGV: as for a cancellation, which comes first. Returns 1 if there was a record.
local before = cancel()
if before == '' then return 0 end
local key, index, id, now = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5])
local known = redis.call('HMGET', key, 'st', 'ou')
local tokens_until = tonumber(known[2]) + tonumber(ARGV[7])
remove(key, index, id)
if known[1] == 'X' and tokens_until > now then
  redis.call('HSET', key, 'st', 'D', 'ou', known[2])
  keep_record(key, index, id, now, tokens_until)
end
return 1
