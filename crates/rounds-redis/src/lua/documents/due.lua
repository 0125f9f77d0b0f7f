-- KEYS: the due times of a kind. ARGV: before and after the member in the key of a document, now, how many at most, and the
-- time and the member after which to begin; an empty member to begin with the first.
-- Returns members, each followed by its time, the longest overdue first. Those whose document has expired are removed from the set.
local due, count, passed, most = {}, 0, 0, tonumber(ARGV[4])
while count < most do
  local some = redis.call('ZRANGE', KEYS[1], ARGV[5], ARGV[3], 'BYSCORE', 'LIMIT', passed, most, 'WITHSCORES')
  if #some == 0 then break end
  for i = 1, #some, 2 do
    local member, at = some[i], some[i + 1]
    local over = redis.call('HGET', ARGV[1] .. member .. ARGV[2], 'u')
    if not over or tonumber(over) <= tonumber(ARGV[3]) then
      redis.call('ZREM', KEYS[1], member)
    else
      passed = passed + 1
      -- Members with the same time are in the order of their bytes, which are hex digits.
      if tonumber(at) > tonumber(ARGV[5]) or member > ARGV[6] then
        due[#due + 1] = member
        due[#due + 1] = at
        count = count + 1
      end
    end
    if count >= most then break end
  end
end
return due
