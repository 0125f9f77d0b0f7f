-- KEYS: the due times of a kind. ARGV: before and after the member in the key of a document, now, how many at most.
-- Returns members, the longest overdue first. Those whose document has expired are removed from the set.
local due = {}
while #due < tonumber(ARGV[4]) do
  local some = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[3], 'BYSCORE', 'LIMIT', #due, ARGV[4])
  local removed = 0
  for _, member in ipairs(some) do
    local over = redis.call('HGET', ARGV[1] .. member .. ARGV[2], 'u')
    if over and tonumber(over) > tonumber(ARGV[3]) then
      due[#due + 1] = member
    else
      redis.call('ZREM', KEYS[1], member)
      removed = removed + 1
    end
    if #due >= tonumber(ARGV[4]) then break end
  end
  if removed == 0 then break end
end
return due
