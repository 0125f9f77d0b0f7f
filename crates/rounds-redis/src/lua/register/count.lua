-- ARGV: indexes, now, and the status: a letter, E for an open record whose time is over, or nothing for all. Returns the
-- targets, each with its count.
local index, now, which = ARGV[1], ARGV[2], ARGV[3]
local counts = {}
for _, target in ipairs(redis.call('ZRANGE', index .. ':targets', 0, -1)) do
  local counted, kept = 0, 0
  for letter in string.gmatch(LETTERS, '.') do
    local set = by(index, letter, target)
    local all = redis.call('ZCARD', set)
    kept = kept + all
    if which == '' and is_open(letter) then
      counted = counted + all
    elseif all > 0 and (which == '' or which == letter or which == 'E' and is_open(letter)) then
      local before_its_end = redis.call('ZCOUNT', set, '(' .. now, '+inf')
      counted = counted + (which == 'E' and all - before_its_end or before_its_end)
    end
  end
  if counted > 0 then
    counts[#counts + 1] = target
    counts[#counts + 1] = counted
  elseif kept == 0 then
    redis.call('ZREM', index .. ':targets', target)
  end
end
return counts
