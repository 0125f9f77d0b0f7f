-- ARGV: indexes, the prefix of keys, now, how many at most. Returns how many were removed.
local index, now = ARGV[1], tonumber(ARGV[3])
local removed = 0
for _, id in ipairs(redis.call('ZRANGE', index .. ':due', '-inf', ARGV[3], 'BYSCORE', 'LIMIT', 0, ARGV[4])) do
  local key = ARGV[2] .. ':{' .. id .. '}:f'
  local known = redis.call('HMGET', key, 'st', 'ou')
  if known[1] and is_open(known[1]) and tonumber(known[2]) > now then
    -- Its owner has renewed its lease for longer than a record is kept.
    redis.call('HSET', key, 'ku', known[2])
    keep_record(key, index, id, now, tonumber(known[2]))
  else
    remove(key, index, id)
    removed = removed + 1
  end
end
return removed
