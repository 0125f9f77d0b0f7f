-- ARGV: the sorted set, indexes, the prefix of keys, how many, and the position to begin after: created and id, or
-- nothing. Returns whether this is the end, and then for each record its id and columns.
local set, index, prefix, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local start = 0
if ARGV[5] ~= '' then start = redis.call('ZCOUNT', set, '-inf', '(' .. ARGV[5]) end
local found = redis.call('ZRANGE', set, start, start + most - 1, 'WITHSCORES')
-- Ids of the same millisecond that come before the position.
while ARGV[5] ~= '' and #found == 2 * most and found[#found] == ARGV[5] and found[#found - 1] <= ARGV[6] do
  start = start + most
  found = redis.call('ZRANGE', set, start, start + most - 1, 'WITHSCORES')
end
local rows = {#found < 2 * most and 1 or 0}
for at = 1, #found, 2 do
  local id = found[at]
  if ARGV[5] == '' or tonumber(found[at + 1]) > tonumber(ARGV[5]) or id > ARGV[6] then
    local row = redis.call('HMGET', prefix .. ':{' .. id .. '}:f', 'st', 'me', 'ta', 'pr', 'cr', 'ch', 'dl', 'rd', 'op',
      'ou', 'ku', 'ow', 'ol', 'ks')
    if row[1] then
      rows[#rows + 1] = id
      rows[#rows + 1] = row
    else
      -- Redis has removed the record when its time was over.
      redis.call('ZREM', index .. ':all', id)
      redis.call('ZREM', index .. ':open', id)
    end
  end
end
return rows
