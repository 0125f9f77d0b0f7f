-- `step` is the settling itself. The change follows its arguments.
local before = redis.call('HGET', KEYS[1], 's')
local settled = step()
-- If this is the same call again, the first has applied the change.
if settled == 1 and before == 'R' then
  apply(ARGV[5] == '1' and 9 or 6)
end
return settled
