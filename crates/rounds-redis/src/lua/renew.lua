-- KEYS: claim, the record of its flow if the claim is of a round. ARGV: fence, lease until, round, indexes, id.
local known = redis.call('HMGET', KEYS[1], 's', 'f', 'u', 'o')
if known[1] ~= 'R' or known[2] ~= ARGV[1] then return 0 end
local keep_until, lease_until = tonumber(known[3]), tonumber(ARGV[2])
redis.call('HSET', KEYS[1], 'l', text(lease_until))
keep(KEYS[1], math.max(keep_until, lease_until) + tonumber(known[4]))
if KEYS[2] then
  local record = redis.call('HMGET', KEYS[2], 'st', 'rd', 'ou', 'ow', 'ta')
  if record[1] == 'W' and record[2] == ARGV[3] then
    local open_until = text(math.max(tonumber(record[3]), lease_until))
    redis.call('HSET', KEYS[2], 'ou', open_until)
    redis.call('ZADD', ARGV[4] .. ':by:W:' .. record[5], 'XX', open_until, ARGV[5])
    if record[4] ~= '' then redis.call('HSET', KEYS[2], 'ol', text(lease_until)) end
  end
end
return 1
